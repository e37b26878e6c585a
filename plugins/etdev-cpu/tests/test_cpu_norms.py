"""Norms that etdev-cpu writes with XNNPACK's means."""

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim

from etdev import Lowerer

NORMS = {
    "rows": (nn.LayerNorm(64), (4, 12, 64)),
    "rows of images": (nn.LayerNorm((4, 5, 6), elementwise_affine=False), (20, 4, 5, 6)),
    "groups": (nn.GroupNorm(4, 8), (2, 8, 16, 16)),
    "all channels": (nn.GroupNorm(1, 8, affine=False), (2, 8, 16, 16)),
    "groups of series": (nn.GroupNorm(2, 16), (2, 16, 100)),
    "groups of volumes": (nn.GroupNorm(2, 8), (1, 8, 6, 7, 8)),
    "each channel": (nn.InstanceNorm2d(8, affine=True), (1, 8, 16, 16)),
    "each channel of a batch": (nn.InstanceNorm1d(8), (3, 8, 100)),
}
DYNAMIC = {
    "rows": {0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=32)},
    "groups": {0: Dim("batch", min=1, max=3)},
    "each channel": {2: Dim("height", min=4, max=32), 3: Dim("width", min=4, max=32)},
}
OPS = ("native_layer_norm", "native_group_norm", "_native_batch_norm_legit")


def drawn(norm: nn.Module) -> nn.Module:
    for weight in norm.parameters():
        nn.init.uniform_(weight, 0.5, 2)
    return norm.eval()


def left(lowered):
    """Return the ops on portable kernels, except those of sizes and views."""
    ops = {e.op for e in lowered.plan["forward"].ledger if e.owner == "portable"}
    return ops - {"aten.view_copy.default", "aten.sym_size.int"}


@pytest.mark.slice("rows", "groups", "each channel")
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_means_in_one_delegate_and_right_beside_a_large_mean(name):
    norm, sizes = drawn(NORMS[name][0]), NORMS[name][1]
    calls = [(torch.randn(sizes) * scale,) for scale in (1, 1e-3, 1e3)]
    lowered = Lowerer(["cpu"]).lower(norm, calls[0])
    assert (len(lowered.plan["forward"].partitions), left(lowered)) == (1, set())
    assert_agrees(lowered, norm, *calls)
    # In steps of 6e-5, so that means and results are off by some of them.
    assert_agrees(lowered, norm, (torch.randn(sizes) + 1000,), tolerance=2e-3)


@pytest.mark.parametrize("name", DYNAMIC)
def test_norms_of_dynamic_sizes_are_means(name):
    norm, sizes = drawn(NORMS[name][0]), NORMS[name][1]
    others = [tuple(5 if d in DYNAMIC[name] else s for d, s in enumerate(sizes))]
    others[0] = (min(others[0][0], 3), *others[0][1:])
    calls = [(torch.randn(size),) for size in (sizes, *others, sizes)]
    lowered = Lowerer(["cpu"]).lower(norm, calls[0], dynamic_shapes=(DYNAMIC[name],))
    assert left(lowered) == set()
    assert_agrees(lowered, norm, *calls)


KEPT = {
    "few rows": (nn.LayerNorm(64), (4, 64), "ignored"),
    "long rows": (nn.LayerNorm(256), (16, 256), "ignored"),
    "small images": (nn.GroupNorm(2, 4), (1, 4, 5, 5), "ignored"),
    "exact": (nn.LayerNorm(64), (64, 64), "exact"),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_norms_stay_on_their_kernels(name):
    norm, sizes, nan = KEPT[name]
    lowered = Lowerer([CpuPlugin(nan=nan)]).lower(norm, (torch.randn(sizes),))
    assert any(kernel in op for op in left(lowered) for kernel in OPS)
    assert_agrees(lowered, norm, (torch.randn(sizes) + 1000,), tolerance=2e-3)


def test_a_net_of_convolutions_and_norms_is_one_delegate():
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 4, 1)
    net = nn.Sequential(*layers, nn.InstanceNorm2d(4)).eval()
    lowered = Lowerer(["cpu"]).lower(net, (torch.randn(1, 3, 24, 24),))
    assert (len(lowered.plan["forward"].partitions), left(lowered)) == (1, set())
    assert_agrees(lowered, net, (torch.randn(1, 3, 24, 24),))
