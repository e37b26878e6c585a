"""Weights of few bits, quantised by torchao."""

from __future__ import annotations

from typing import Any, ClassVar

# Registers ExecuTorch's ops that read rows of quantised embeddings.
import executorch.exir.passes.quant_fusion_pass  # noqa: F401
import torch
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxUnpackedToInt8Tensor,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.utils import TorchAOBaseTensor

from etdev.errors import SourceError

# Weights that have a scale together, as XNNPACK and ExecuTorch's export_llm have it.
GROUP = 32
# torch has no stub for it.
INT4: torch.dtype = vars(torch)["int4"]
# torchao's name for activations of 8 bits, quantised for each token.
_PER_TOKEN = "int8_asym_per_token"
_OPS = torch.ops.quantized_decomposed


class Rows(TorchAOBaseTensor):  # type: ignore[misc]
    """A table of embeddings that dequantises only the rows that are read.

    Args:
        table: int8 values, or two of 4 bits in each uint8, as ExecuTorch's kernel has them.
        scale: A scale for each group of a row.
        bits: 4 or 8.
        dtype: The dtype of the embeddings.
    """

    tensor_data_names: ClassVar[list[str]] = ["table", "scale"]
    tensor_attribute_names: ClassVar[list[str]] = ["bits", "dtype"]

    def __new__(
        cls, table: torch.Tensor, scale: torch.Tensor, bits: int, dtype: torch.dtype
    ) -> Rows:
        """Return a tensor with the shape of the embeddings."""
        shape = (table.shape[0], table.shape[1] * 8 // bits)
        made: Rows = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=table.device, requires_grad=False
        )
        return made

    def __init__(
        self, table: torch.Tensor, scale: torch.Tensor, bits: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.table, self.scale, self.bits = table, scale, bits

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of some rows."""
        op = _OPS.embedding_byte.dtype if self.bits == 8 else _OPS.embedding_4bit.dtype
        least = -(2 ** (self.bits - 1))
        found: torch.Tensor = op(
            self.table, self.scale, None, least, -least - 1, rows, dtype=self.dtype
        )
        return found


@Rows.implements_torch_function(nn.functional.embedding)  # type: ignore[untyped-decorator]
def _embedding(_: Any, __: Any, args: Any, ___: Any) -> torch.Tensor:
    rows, weight = args
    found: torch.Tensor = weight.read(rows)
    return found


def quantise(model: Any, linears: str, embeddings: str, scales: str = "bfloat16") -> None:
    """Quantise the linear layers and the table of tokens of a model, in place.

    Args:
        model: A decoder of transformers.
        linears: `8da4w`, `8da8w` (activations of 8 bits, weights of 4 or 8), `int8` or `none`.
        embeddings: `4`, `8` or `none`.
        scales: The dtype of the scales of 4-bit weights. XNNPACK rounds others to bfloat16.

    Raises:
        SourceError: No layer has a size that can be quantised so.
    """
    name, table = type(model).__name__, model.get_input_embeddings()
    known = _activated(model, linears)
    least = {"8da4w": GROUP}.get(linears, 1)

    def fits(module: nn.Module, _: str) -> bool:
        linear = isinstance(module, nn.Linear) and module.in_features % least == 0
        return linear and not isinstance(module.weight, TorchAOBaseTensor)

    if embeddings != "none":
        if embeddings == "4" and table.embedding_dim % GROUP:
            what = f"has embeddings of {table.embedding_dim}, not of a multiple of {GROUP}"
            raise SourceError(name, what, "leave out --quantize-embedding, or take 8")
        table.weight = nn.Parameter(_rows(table.weight, int(embeddings)), requires_grad=False)
    if linears != "none":
        if not known and not any(fits(module, "") for module in model.modules()):
            what = f"has no linear layer whose inputs are a multiple of {least}"
            raise SourceError(name, what, "take another --quantize")
        quantize_(model, _config(linears, getattr(torch, scales)), filter_fn=fits)


def check(model: Any) -> None:
    """Refuse weights that a folder has in a form of torchao for other hardware.

    Raises:
        SourceError: The form can't be exported for ExecuTorch.
    """
    for name, value in model.named_parameters():
        kind = type(value.data if type(value) is nn.Parameter else value)
        if issubclass(kind, TorchAOBaseTensor) and kind not in (IntxUnpackedToInt8Tensor, Rows):
            what = f"is a {kind.__name__} of torchao, which ExecuTorch doesn't take"
            cure = "quantise it with IntxWeightOnlyConfig or Int8DynamicActivationIntxWeightConfig"
            raise SourceError(name, what, cure)


def _activated(model: Any, linears: str) -> int:
    """Let layers of 4 bits that a folder has be computed with integers, and return their number.

    Raises:
        SourceError: XNNPACK would compute one with other numbers.
    """
    done = 0
    for name, module in model.named_modules() if linears == "8da4w" else ():
        own = module.weight if isinstance(module, nn.Linear) else None
        if not isinstance(own, IntxUnpackedToInt8Tensor) or own.activation_quantization:
            continue
        problem = (
            (own.target_dtype != INT4 and f"weights of {own.target_dtype}")
            or (own.block_size[1] % GROUP and f"groups of {own.block_size[1]}")
            or (bool(own.zero_point.any()) and "zero points")
            or (bool((own.scale.bfloat16() != own.scale).any()) and "scales beyond bfloat16")
        )
        if problem:
            what = f"has {problem}, which XNNPACK has no exact product for"
            cure = "leave out --quantize; its weights are dequantised at each call then"
            raise SourceError(name, what, cure)
        made = IntxUnpackedToInt8Tensor(
            own.qdata, own.scale.bfloat16(), own.zero_point, INT4, own.block_size, own.dtype,
            _PER_TOKEN,
        )  # fmt: skip
        module.weight, done = nn.Parameter(made, requires_grad=False), done + 1
    return done


def _config(linears: str, scales: torch.dtype) -> Any:
    if linears == "int8":
        return IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))
    if linears == "8da8w":
        return Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0))
    return Int8DynamicActivationIntxWeightConfig(INT4, PerGroup(GROUP), weight_scale_dtype=scales)


def _rows(weight: torch.Tensor, bits: int) -> Rows:
    kind, size = (torch.int8, weight.shape[1]) if bits == 8 else (INT4, GROUP)
    known = IntxUnpackedToInt8Tensor.from_hp(weight.detach(), (1, size), kind)
    values = known.qdata
    if bits == 4:
        shifted = (values + 8).to(torch.uint8)
        values = (shifted[:, ::2] << 4) | shifted[:, 1::2]
    return Rows(values, known.scale, bits, weight.dtype)
