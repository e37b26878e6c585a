"""Products of integers are exact linear layers, and their weight stays in 8 bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys.runtime import assert_agrees, execute
from torch import Tensor, nn
from torch.export import Dim
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

from etdev import Lowerer

LINEAR = "aten.linear.default"


class Product(nn.Module):
    """Integers times a constant, as torch's quantised models have it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Any:
        return torch._int_mm(x, self.weight.t())


def layers_of(lowered: Any) -> list[str]:
    """Return the owners of the linear layers."""
    return [e.owner for e in lowered.plan["forward"].ledger if e.op == LINEAR]


@pytest.mark.slice("torch.uint8-520-2-cpu", "torch.int8-1600-2-portable")
@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
@pytest.mark.parametrize(
    ("dtype", "inputs", "parts"),
    [(torch.uint8, 64, 1), (torch.uint8, 520, 2), (torch.uint8, 1600, 4), (torch.int8, 1600, 2)],
    ids=str,
)
def test_sums_are_exact_at_the_largest_integers(
    dtype: torch.dtype, inputs: int, parts: int, plugins: Any
) -> None:
    torch.manual_seed(0)
    limits = torch.iinfo(dtype)
    weight = torch.randint(-128, 128, (16, inputs), dtype=torch.int8)
    weight[0], weight[1], weight[2, ::2] = -128, 127, -128
    net = Product(weight)
    given = [(torch.full((32, inputs), limits.max, dtype=dtype),)]
    given += [(torch.randint(limits.min, limits.max + 1, (32, inputs), dtype=dtype),)]
    lowered = Lowerer(plugins).lower(net, given[0])
    assert layers_of(lowered) == (plugins or ["portable"]) * parts
    for (output,), (x,) in zip(execute(lowered, *given), given, strict=True):
        assert torch.equal(output, (x.long() @ weight.long().t()).int())
    assert len(lowered.to_executorch().buffer) < 3 * weight.numel() + 40_000


@pytest.mark.suite
def test_layers_of_torchao_in_every_batch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 300), nn.ReLU(), nn.Linear(300, 64, bias=False))
    quantize_(net, Int8DynamicActivationInt8WeightConfig())
    given = [(torch.randn(rows, 128) * 3,) for rows in (4, 1, 9, 2)] + [(torch.zeros(3, 128),)]
    sizes = ({0: Dim("batch", min=1, max=9)},)
    lowered = Lowerer(["cpu"]).lower(net, given[0], dynamic_shapes=sizes)
    assert layers_of(lowered) == ["cpu", "cpu"]
    assert "aten.permute_copy.default" not in {e.op for e in lowered.plan["forward"].ledger}
    assert_agrees(lowered, net, *given, tolerance=1e-4)


def test_a_weight_that_is_an_input_is_not_a_layer() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Any:
            return torch._int_mm(x, weight.t())

    x, weight = (torch.randint(-128, 128, (32, 64), dtype=torch.int8) for _ in range(2))
    lowered = Lowerer(["cpu"]).lower(Both(), (x, weight))
    assert not layers_of(lowered)
    ((output,),) = execute(lowered, (x, weight))
    assert torch.equal(output, (x.long() @ weight.long().t()).int())
