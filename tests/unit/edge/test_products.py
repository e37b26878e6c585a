"""Products with a transposed weight are linear layers, which no kernel transposes at each call."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import Tensor, nn

from etdev import Lowerer

LINEAR = "aten.linear.default"


class Net(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.weight, self.bias = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6))
        self.table = nn.Embedding(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


PRODUCTS = {
    "mm": lambda net, x: torch.mm(x[0], net.weight.t()),
    "matmul": lambda net, x: x @ net.weight.mT,
    "tied": lambda net, x: (
        x @ net.table.weight.t() + net.table(torch.tensor([[1], [2], [0]])).sum()
    ),
    "addmm": lambda net, x: torch.addmm(net.bias, x[0], net.weight.t()),
    "inner": lambda net, x: torch.inner(x, net.weight),
    "tensordot": lambda net, x: torch.tensordot(x, net.weight, dims=([2], [1])),
    "einsum": lambda net, x: torch.einsum("btd,od->bto", x, net.weight),
    "einsum of a row": lambda net, x: torch.einsum("td,od->to", x[0], net.weight),
    "from the left": lambda net, x: net.weight @ x.transpose(1, 2),
}
OTHERS = {
    "as stored": lambda net, x: x @ net.weight[:4],
    "weighted": lambda net, x: torch.addmm(net.bias, x[0], net.weight.t(), beta=2),
    "bias of each row": lambda net, x: torch.addmm(net.bias[:5, None], x[0], net.weight.t()),
    "of a view that copies": lambda net, x: x @ net.weight.t().reshape(6, 4).t().reshape(4, 6),
    "of an input": lambda net, x: x[0] @ x[1].t(),
}


def calls() -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(3, 5, 4),) for _ in range(3)]


@pytest.mark.slice(
    "mm-cpu",
    "matmul-portable",
    "tied-cpu",
    "addmm-cpu",
    "einsum of a row-cpu",
    "from the left-portable",
)
@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_with_a_transposed_weight_is_a_linear_layer(name: str, plugins: Any) -> None:
    net, given = Net(PRODUCTS[name]).eval(), calls()
    lowered = Lowerer(plugins).lower(net, given[0])
    (layer,) = [entry for entry in lowered.plan["forward"].ledger if entry.op == LINEAR]
    assert layer.owner == (plugins[0] if plugins else "portable")
    ops = {entry.op for entry in lowered.plan["forward"].ledger}
    assert not ops & {"aten.mm.default", "aten.addmm.default", "aten.bmm.default"}
    assert_agrees(lowered, net, *given)


@pytest.mark.slice("as stored", "of a view that copies")
@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_what_they_are(name: str) -> None:
    net, given = Net(OTHERS[name]).eval(), calls()
    lowered = Lowerer(["cpu"]).lower(net, given[0])
    assert LINEAR not in {entry.op for entry in lowered.plan["forward"].ledger}
    assert_agrees(lowered, net, *given)


def test_a_product_of_a_batch_keeps_its_sizes() -> None:
    net = Net(PRODUCTS["matmul"]).eval()
    given = [(torch.randn(rows, 5, 4),) for rows in (3, 1, 8, 2)]
    sizes = {"x": {0: torch.export.Dim("n", min=1, max=8)}}
    program = torch.export.export(net, given[0], dynamic_shapes=sizes)
    lowered = Lowerer(["cpu"]).lower(program)
    assert [entry.op for entry in lowered.plan["forward"].ledger] == [LINEAR]
    assert_agrees(lowered, net, *given)


def test_a_runtime_of_portable_kernels_alone_gets_no_linear_layer(tmp_path: Path) -> None:
    registry = tmp_path / "registry.toml"
    registry.write_text('[plugins.portable.options]\nkernels = "portable"\n')
    module, given = nn.Linear(4, 6).eval(), calls()
    operators = {}
    for key, options in (("optimized", {}), ("portable", {"registry": registry})):
        lowered = Lowerer([], **options).lower(module, given[0])
        assert_agrees(lowered, module, *given)
        plan = lowered.to_executorch().executorch_program.execution_plan[0]
        operators[key] = {op.name for op in plan.operators}
    assert operators["optimized"] == {"aten::linear"}
    assert "aten::linear" not in operators["portable"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_a_layer_that_the_optimised_kernel_fails_on_is_decomposed(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    weight = torch.arange(24).view(6, 4).to(dtype)
    module = Function(lambda x: torch.nn.functional.linear(x, weight))
    given = [(torch.full(shape, value).to(dtype),) for value in (1, 2)]
    lowered = Lowerer([]).lower(module, given[0])
    assert LINEAR not in {entry.op for entry in lowered.plan["forward"].ledger}
    assert_agrees(lowered, module, *given)


def test_a_weight_that_the_input_decides_is_read_as_it_is() -> None:
    module = Function(torch.nn.functional.linear)
    given = [(torch.randn(2, 5, 4), torch.randn(6, 4)) for _ in range(2)]
    lowered = Lowerer(["cpu"]).lower(module, given[0])
    assert [(e.op, e.owner) for e in lowered.plan["forward"].ledger] == [(LINEAR, "portable")]
    assert_agrees(lowered, module, *given)
