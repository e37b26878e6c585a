"""A quantised layer stays one pattern where ops that only move values are next to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from etdev_cpu.notes import IMPLICIT
from etdev_cpu.plugin import CpuPlugin
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from support.quirks.quantised import pt2e
from support.toys.runtime import execute
from torch import Tensor, nn
from torch.nn import functional
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from etdev import Lowerer

INPUT = (2, 8, 6, 6)
ops = torch.ops.quantized_decomposed


class Net(nn.Module):
    """A layer whose input or result is moved by a function, as quantisers see neither."""

    def __init__(self, function: Any, channels: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.scale = function, (0.02, 3, -128, 127, torch.int8)
        weight = torch.randint(-127, 128, (4, channels, 3, 3), dtype=torch.int8)
        self.register_buffer("weight", weight)

    def quantised(self, x: Tensor) -> Tensor:
        integers = ops.quantize_per_tensor(x, *self.scale)
        return ops.dequantize_per_tensor(integers, *self.scale)

    def layer(self, x: Tensor) -> Tensor:
        weight = ops.dequantize_per_tensor(self.weight, 0.001, 0, -127, 127, torch.int8)
        return functional.conv2d(x, weight).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def after(move: Any) -> Any:
    return lambda net, x: net.quantised(net.layer(move(net.quantised(x))))


def before(move: Any) -> Any:
    return lambda net, x: net.quantised(move(net.layer(net.quantised(x))))


def joined(net: Net, x: Tensor) -> Tensor:
    both = torch.cat([net.quantised(x), net.quantised(x * 0.5)], 1)
    return net.quantised(net.layer(both))


def with_others(net: Net, x: Tensor) -> Tensor:
    padded = functional.pad(net.quantised(x), (1, 1))
    return net.quantised(net.layer(padded)).sum() + padded.exp()


MOVES = {
    "padded": after(lambda x: functional.pad(x, (1, 2, 0, 1))),
    "padded by what is stored": after(lambda x: functional.pad(x, (1, 1), value=0.02 * 5)),
    "sliced": after(lambda x: x[:, :, 1:]),
    "transposed": after(lambda x: x.transpose(2, 3)),
    "viewed": after(lambda x: x.view(2, 8, 4, 9)),
    "in two steps": after(lambda x: functional.pad(x.transpose(2, 3)[:, :, :5], (1, 1))),
    "result viewed": before(lambda x: x.view(2, -1)),
    "result padded": before(lambda x: functional.pad(x, (1, 1), value=0.123)),
    "result in two steps": before(lambda x: x.transpose(1, 2)[:, 1:]),
}


def calls() -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(INPUT, generator=generator),) for _ in range(3)]


def owners(lowered: Any) -> dict[str, str | None]:
    return {entry.op: entry.owner for entry in lowered.plan["forward"].ledger}


@pytest.mark.slice("result viewed")
@pytest.mark.parametrize("name", MOVES)
def test_a_moved_value_is_quantised_as_before(name: str) -> None:
    """The values on portable kernels have the same bits, and XNNPACK has the layer in int8."""
    net, given = Net(MOVES[name]).eval(), calls()
    plain, kept, delegated = (
        Lowerer(plugins, simplify=simplify).lower(net, given[0])
        for plugins, simplify in (([], False), ([], True), (["cpu"], True))
    )
    for inputs in given:
        expected = execute(plain, inputs)[0][0]
        assert torch.equal(execute(kept, inputs)[0][0], expected)
        # Rounded in integers, a result may be the next one.
        assert (execute(delegated, inputs)[0][0] - expected).abs().max() <= 0.0201
    layer = delegated.plan["forward"].ledger["aten_convolution_default"]
    assert (layer.owner, layer.precision) == ("cpu", "int8")


def test_joined_values_of_one_scale_are_quantised_as_before() -> None:
    net, given = Net(joined, channels=16).eval(), calls()
    plain, delegated = (Lowerer(p).lower(net, given[0]) for p in ([], ["cpu"]))
    for inputs in given:
        difference = execute(delegated, inputs)[0][0] - execute(plain, inputs)[0][0]
        assert difference.abs().max() <= 0.0201
    assert owners(delegated)["aten.convolution.default"] == "cpu"


def test_a_part_of_a_split_value_is_quantised_as_before() -> None:
    function = after(lambda x: x.chunk(2, 1)[1])
    net, given = Net(function, channels=4).eval(), calls()
    plain, delegated = (Lowerer(p).lower(net, given[0]) for p in ([], ["cpu"]))
    for inputs in given:
        difference = execute(delegated, inputs)[0][0] - execute(plain, inputs)[0][0]
        assert difference.abs().max() <= 0.0201
    layer = delegated.plan["forward"].ledger["aten_convolution_default"]
    assert (layer.owner, layer.precision) == ("cpu", "int8")


@pytest.mark.parametrize(
    "function",
    [
        after(lambda x: functional.pad(x, (1, 1), value=0.123)),
        lambda net, x: net.quantised(x).transpose(2, 3).exp(),
    ],
    ids=["a number between two integers", "no quantised layer"],
)
def test_what_would_change_or_gain_nothing_stays(function: Any) -> None:
    net, given = Net(function).eval(), calls()
    with_it, without = (Lowerer([], simplify=on).plan(net, given[0]) for on in (True, False))
    assert [e.op for e in with_it["forward"].ledger] == [e.op for e in without["forward"].ledger]


def test_ops_that_compute_in_floats_read_the_floats() -> None:
    net, given = Net(with_others).eval(), calls()
    plain, kept = (Lowerer([], simplify=on).lower(net, given[0]) for on in (False, True))
    for inputs in given:
        assert torch.equal(execute(kept, inputs)[0][0], execute(plain, inputs)[0][0])


class Same(nn.Module):
    """Convolutions with an even kernel, which torch pads apart, as in keyword spotting."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(1, 6, (8, 1), padding="same")
        self.d = nn.Conv2d(6, 4, (3, 4), padding="same")

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.c(x).relu()).relu()


@pytest.mark.suite
def test_int8_convolutions_padded_apart_are_one_delegate() -> None:
    torch.manual_seed(0)
    given = [(torch.randn(1, 1, 40, 6),) for _ in range(4)]
    config = get_symmetric_quantization_config(is_per_channel=True)
    module = torch.export.export(Same().eval(), given[0]).module()
    prepared = prepare_pt2e(module, XNNPACKQuantizer().set_global(config))
    for inputs in given:
        prepared(*inputs)
    net = convert_pt2e(prepared)
    lowered = Lowerer(["cpu"]).lower(net, given[0])
    plan = lowered.plan["forward"]
    assert (len(plan.partitions), plan.fallback) == (1, ())
    for inputs in given:
        expected = net(*inputs)
        step = expected.unique().diff().min()
        assert (execute(lowered, inputs)[0][0] - expected).abs().max() <= 1.01 * step


@pytest.mark.parametrize(("name", "conversions"), [("padded", 2), ("padded by what is stored", 4)])
def test_xnnpack_pads_integers_where_it_pads_with_zero(name: str, conversions: int) -> None:
    plugin, net = CpuPlugin(), Net(MOVES[name]).eval()
    (partition,) = Lowerer([plugin]).plan(net, calls()[0])["forward"].partitions
    implicit = {node for node, note in plugin.annotate(partition).items() if note.get(IMPLICIT)}
    weight = "quantized_decomposed_dequantize_per_tensor_default_1"
    quantisers = {node for node in partition.nodes if "quantize_per_tensor" in node}
    assert len(quantisers - implicit - {weight}) == conversions


class Positions(nn.Module):
    """Features beside a layer of positions, which constants alone decide."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(12, 8))
        self.of_positions, self.of_features = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.cat([self.positions.sin(), self.positions.cos()]).view(2, 12, 8)
        return self.of_features(x) + self.of_positions(turned).sum(0)


@pytest.mark.slice("True")
@pytest.mark.parametrize("dynamic", [False, True])
def test_quantised_layers_of_constants_are_computed_ahead_of_time(dynamic: bool) -> None:
    torch.manual_seed(0)
    given = [(torch.randn(1, 12, 8),) for _ in range(3)]
    net = pt2e(Positions(), given[0][0], is_dynamic=dynamic, is_per_channel=True)
    lowered = Lowerer(["cpu"]).lower(net, given[0])
    plan = lowered.plan["forward"]
    (layer,) = [e.owner for e in plan.ledger if e.op == "aten.linear.default"]
    assert (layer, plan.fallback) == ("cpu", ())
    for inputs in given:
        expected = net(*inputs)
        assert (
            execute(lowered, inputs)[0][0] - expected
        ).abs().max() <= 0.02 * expected.abs().max()


def test_weights_stay_integers_where_a_layer_may_read_them() -> None:
    torch.manual_seed(0)
    net = pt2e(nn.Linear(8, 8), torch.randn(2, 8))
    program = Lowerer(["cpu"]).lower(net, (torch.randn(2, 8),)).lowering.programs["forward"]
    stored = (*program.constants.values(), *program.state_dict.values())
    assert {value.dtype for value in stored if value.numel() == 64} == {torch.int8}
