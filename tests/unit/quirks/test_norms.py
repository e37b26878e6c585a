"""Norms of half precision with weights in float32."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn

from etdev import Lowerer


def by_lowerer(module, inputs, plugins=("cpu",)):
    return Lowerer(plugins).lower(module, inputs)


def made(norm):
    """A norm whose weights and statistics are no ones and zeros."""
    for value in (*norm.parameters(), *norm.buffers()):
        if value.is_floating_point():
            value.data.uniform_(0.5, 2)
    return norm.eval()


NORMS = nn.ModuleList(
    made(norm)
    for norm in (
        *(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.GroupNorm(2, 4), nn.LayerNorm(5)),
        *(nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4, track_running_stats=False)),
        nn.LayerNorm(5, bias=False),
    )
)


def normalised(x):
    return torch.cond(x.sum() > 0, NORMS[3], NORMS[2], (x,)), *(norm(x) for norm in NORMS)


@pytest.mark.slice("float16-by_lowerer")
@pytest.mark.parametrize("lower", [by_lowerer, by_partitioner])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_may_be_wider_than_what_is_normalised(lower, dtype):
    calls = [(torch.randn(2, 4, 5, 5).to(dtype) * scale,) for scale in (1, 7, -0.1)]
    lowered = lower(Function(normalised), calls[0], ["cpu"])
    assert_agrees(lowered, Function(normalised), *calls, tolerance=8 * torch.finfo(dtype).eps)


@pytest.mark.slice("float16")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_groups_of_a_dynamic_batch_may_have_wider_weights(dtype):
    rows = {"inputs": ({0: torch.export.Dim("rows", max=8)},)}
    calls = [(torch.randn(rows, 4, 5, 5).to(dtype),) for rows in (3, 8, 1)]
    lowered = Lowerer(["cpu"]).lower(Function(NORMS[2]), calls[0], dynamic_shapes=rows)
    assert_agrees(lowered, Function(NORMS[2]), *calls, tolerance=1e-2)
