"""Only the rows that are read of a table are computed, where constants decide all of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys.runtime import assert_agrees, execute
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup

from etdev import Lowerer

ROWS, WIDTH = 2000, 32
ops = torch.ops.quantized_decomposed
READ = "aten.index_select.default"


class Net(nn.Module):
    """A table whose rows a function reads, and a layer."""

    def __init__(self, function: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function or (lambda net, x: net.table(x))
        self.table, self.layer = nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, 8)
        integers = torch.randint(-128, 128, (ROWS, WIDTH), dtype=torch.int8)
        self.register_buffer("integers", integers)
        self.register_buffer("scales", torch.rand(ROWS) + 0.1)
        self.register_buffer("zeros", torch.randint(-9, 9, (ROWS,), dtype=torch.int8))
        self.register_buffer("halves", torch.randn(ROWS, WIDTH).half())

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.function(self, x))


def channels(net: Any, _: Any = None) -> Any:
    limits = 0, -128, 127, torch.int8
    return ops.dequantize_per_channel(net.integers, net.scales, net.zeros.long(), *limits)


READS = {
    "by channel": lambda net, x: functional.embedding(x, channels(net)),
    "by hand": lambda net, x: functional.embedding(
        x, (net.integers - net.zeros[:, None].float()) * net.scales.unsqueeze(1)
    ),
    "by tensor": lambda net, x: functional.embedding(
        x, ops.dequantize_per_tensor(net.integers, 0.1, 3, -128, 127, torch.int8)
    ),
    "halves": lambda net, x: functional.embedding(x, net.halves.float()),
    "in groups": lambda net, x: functional.embedding(
        x, (net.integers.view(ROWS, 4, -1) * net.scales[:, None, None]).view(ROWS, WIDTH)
    ),
    "divided by a number of all of it": lambda net, x: functional.embedding(
        x, net.integers / net.halves.float().norm()
    ),
    "selected": lambda net, x: channels(net).index_select(0, x.flatten()),
    "twice": lambda net, x: (
        functional.embedding(x, channels(net)) + functional.embedding(x + 1, channels(net))
    ),
    "also as a weight": lambda net, x: functional.embedding(
        functional.linear(functional.embedding(x, channels(net)), channels(net)).argmax(-1),
        channels(net),
    ),
}
# All of the table counts, or only what is read is as large.
OTHERS = {
    "by column": lambda net, x: functional.embedding(
        x, (net.integers[:WIDTH] * net.scales[:WIDTH])
    ),
    "cumulated": lambda net, x: functional.embedding(x, channels(net).cumsum(0)),
    "many rows": lambda net, x: channels(net).index_select(0, x.flatten().repeat(400)),
}


def calls(most: int = ROWS - 1) -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    positions = [torch.randint(0, most, (2, 3)), torch.tensor([[0, most - 1, 0], [5, 5, 7]])]
    return [(each,) for each in positions]


def planned(lowered: Any) -> int:
    """Return the bytes of the largest value that ExecuTorch plans."""
    (plan,) = lowered.to_executorch().executorch_program.execution_plan
    return max(plan.non_const_buffer_sizes)


@pytest.mark.slice(
    "in groups-cpu", "by tensor-portable", "selected-cpu", "also as a weight-portable"
)
@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
@pytest.mark.parametrize("name", READS)
def test_only_the_rows_that_are_read_are_computed(name: str, plugins: Any) -> None:
    net, given = Net(READS[name]).eval(), calls()
    lowered = Lowerer(plugins).lower(net, given[0])
    assert lowered.plan["forward"].simplified["tables"]
    table = ROWS * WIDTH * 4
    assert planned(lowered) < table or name == "also as a weight"
    assert_agrees(lowered, net, *given, tolerance=1e-4)
    plain = Lowerer(plugins, simplify=False).lower(net, given[0])
    assert planned(plain) >= table
    for one, other in zip(execute(lowered, *given), execute(plain, *given), strict=True):
        torch.testing.assert_close(one[0], other[0])


@pytest.mark.parametrize("name", OTHERS)
def test_tables_that_are_not_computed_row_by_row_stay_whole(name: str) -> None:
    net, given = Net(OTHERS[name]).eval(), calls(WIDTH)
    lowered = Lowerer(["cpu"]).lower(net, given[0])
    assert "tables" not in lowered.plan["forward"].simplified
    assert_agrees(lowered, net, *given, tolerance=1e-4)


@pytest.mark.slice("False-int4")
@pytest.mark.parametrize(
    ("bits", "granularity"),
    [(torch.int8, PerAxis(0)), (torch.int4, PerGroup(16))],
    ids=["int8", "int4"],
)
@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_torchao_tables_in_sizes_that_change(
    bits: Any, granularity: Any, tied: bool
) -> None:
    net = Net().eval()
    if tied:
        net.layer = nn.Linear(WIDTH, ROWS, bias=False)
    config = IntxWeightOnlyConfig(weight_dtype=bits, granularity=granularity)
    quantize_(net, config, lambda module, _: isinstance(module, nn.Embedding))
    if tied:
        net.layer.weight = net.table.weight
    given = [
        (torch.randint(0, ROWS, size),) for size in [(2, 3), (1, 1), (3, 7), (1, 7), (3, 1), (2, 2)]
    ]
    sizes = ({0: Dim("batch", min=1, max=3), 1: Dim("length", min=1, max=7)},)
    lowered = Lowerer(["cpu"]).lower(net, given[0], dynamic_shapes=sizes)
    assert lowered.plan["forward"].simplified["tables"] == 1
    assert READ in {entry.op for entry in lowered.plan["forward"].ledger}
    assert_agrees(lowered, net, *given, tolerance=1e-4)
