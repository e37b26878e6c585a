"""XNNPACK has linear layers of floats whose weight is stored in 8 bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys.runtime import assert_agrees
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.quant_primitives import MappingType

from etdev import Lowerer

WIDTH, OUT = 48, 480
LINEAR = "aten.linear.default"
ops = torch.ops.quantized_decomposed


def quantised(module: nn.Module, **options: Any) -> nn.Module:
    given = {"weight_dtype": torch.int8, "granularity": PerAxis(0), **options}
    quantize_(module, IntxWeightOnlyConfig(**given))
    return module.eval()


def by_torchao(module: nn.Module) -> nn.Module:
    """Quantise by torchao's own weight-only configuration, which scales products."""
    quantize_(module, Int8WeightOnlyConfig())
    return module.eval()


def layers(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    first, second = nn.Linear(WIDTH, OUT, bias=bias), nn.Linear(OUT, 144, bias=bias)
    return nn.Sequential(first, nn.ReLU(), second)


class Channels(nn.Module):
    """A layer whose weight PT2E's op dequantises, by output or by input."""

    def __init__(self, axis: int = 0, zero: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.axis = axis
        self.register_buffer("weight", torch.randint(-127, 128, (OUT, WIDTH), dtype=torch.int8))
        self.register_buffer("scales", torch.rand((OUT, WIDTH)[axis]) / 100 + 0.01)
        self.register_buffer("zeros", torch.full(((OUT, WIDTH)[axis],), zero))
        self.bias = nn.Parameter(torch.randn(OUT))

    def forward(self, x: Tensor) -> Tensor:
        limits = self.axis, -127, 127, torch.int8
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, *limits)
        return functional.linear(x, weight, self.bias).sigmoid()


class Tied(nn.Module):
    """A table of words that is the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(3000, WIDTH), nn.Linear(WIDTH, 3000, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x))


def owners(lowered: Any) -> set[str]:
    """Return who has the linear layers."""
    return {e.owner for e in lowered.plan["forward"].ledger if e.op == LINEAR}


def calls(*rows: int) -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(each, WIDTH) * 3,) for each in rows]


@pytest.mark.slice("PT2E", "torchao without bias")
@pytest.mark.parametrize(
    "model",
    [
        quantised(layers()),
        quantised(layers(bias=False)),
        quantised(layers()[:1], granularity=PerGroup(WIDTH)),
        quantised(layers(), weight_dtype=torch.int4),
        by_torchao(layers()),
        by_torchao(layers(bias=False)),
        Channels().eval(),
    ],
    ids=["bias", "no bias", "one group", "four bits", "torchao", "torchao without bias", "PT2E"],
)
def test_weights_stay_in_eight_bits_in_every_batch(model: nn.Module) -> None:
    given = calls(3, 1, 9, 2, 8)
    sizes = ({0: Dim("batch", min=1, max=9)},)
    lowered = Lowerer(["cpu"]).lower(model, given[0], dynamic_shapes=sizes)
    assert lowered.plan["forward"].simplified.get("constants", 0) == 0
    given += [(torch.zeros(2, WIDTH),), (torch.arange(2.0 * WIDTH).view(2, WIDTH),)]
    assert_agrees(lowered, model, *given)
    assert len(lowered.to_executorch().buffer) < 2 * OUT * (WIDTH + 144)
    assert owners(lowered) == {"cpu"}


def test_a_table_of_words_is_a_layer_with_the_same_integers() -> None:
    model = Tied()
    config = IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))
    quantize_(model, config, lambda module, _: isinstance(module, nn.Embedding))
    model.head.weight = model.table.weight
    given = [(torch.randint(0, 3000, (1, n)),) for n in (4, 4)]
    lowered = Lowerer(["cpu"]).lower(model.eval(), given[0])
    assert owners(lowered) == {"cpu"}
    assert_agrees(lowered, model, *given, tolerance=1e-4)


OTHERS = {
    "zero points": quantised(layers(), mapping_type=MappingType.ASYMMETRIC),
    "zero points of PT2E": Channels(zero=2).eval(),
    "groups": quantised(layers(), granularity=PerGroup(16)),
    "by input": Channels(axis=1).eval(),
}


@pytest.mark.slice("zero points of PT2E", "by input")
@pytest.mark.parametrize("name", OTHERS)
def test_other_weights_are_dequantised_by_kernels(name: str) -> None:
    given = calls(3, 3)
    lowered = Lowerer(["cpu"]).lower(OTHERS[name], given[0])
    # ExecuTorch's optimised kernel reads a weight as PyTorch lays it out.
    assert owners(lowered) == {"portable"}
    assert_agrees(lowered, OTHERS[name], *given, tolerance=1e-4)


def test_a_registry_with_float32_alone_leaves_weights_to_kernels(tmp_path: Any) -> None:
    registry = tmp_path / "registry.toml"
    registry.write_text('[plugins.cpu.options]\nprecisions = ["fp32"]\n')
    model, given = quantised(layers()), calls(3, 3)
    lowered = Lowerer(["cpu"], registry=registry).lower(model, given[0])
    assert_agrees(lowered, model, *given, tolerance=1e-4)
