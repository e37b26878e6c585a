"""Folders with quantised weights: of torchao, and of GPTQ and AWQ, which pack 4 bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torchao.quantization import IntxUnpackedToInt8Tensor

from etdev.errors import SourceError
from etdev_llm.quantisation import INT4, check

_BITS, _EACH = 4, 8
# The column of each 4 bits of an integer, from the lowest on.
_GPTQ, _AWQ = tuple(range(_EACH)), (0, 2, 4, 6, 1, 3, 5, 7)
_PACKED = ("qweight", "qzeros", "scales", "g_idx")


def loaded(text: str, config: Any, kind: Any, dtype: torch.dtype) -> Any:
    """Return the model of a folder or hub id whose configuration says how it is quantised.

    Args:
        text: The folder or hub id.
        config: Its configuration.
        kind: transformers' class for the model.
        dtype: Of what is not quantised, and of the dequantised values.

    Raises:
        SourceError: Its weights are in a form that ExecuTorch doesn't take.
    """
    method = str(_fields(config).get("quant_method", ""))
    if method == "torchao":
        model = kind.from_pretrained(text, dtype=dtype)
        check(model)
        return model
    if method in ("gptq", "awq") and Path(text).is_dir():
        return _unpacked(Path(text), config, kind, dtype)
    what = f"has weights that are quantised by {method}"
    raise SourceError(text, what, "give a folder of torchao, GPTQ or AWQ, or float weights")


def _unpacked(folder: Path, config: Any, kind: Any, dtype: torch.dtype) -> Any:
    """Return the model of a folder of GPTQ or AWQ, with the packed values in int8."""
    fields, name = _fields(config), str(folder)
    form = fields.get("checkpoint_format") or fields.get("version") or fields["quant_method"]
    if fields.get("bits") != _BITS or form not in ("gptq", "gptq_v2", "awq", "gemm"):
        what = f"has weights of {fields.get('bits')} bits in the form {form}"
        raise SourceError(name, what, "give 4 bits of GPTQ (gptq, gptq_v2) or AWQ (gemm)")
    files = sorted(folder.glob("*.safetensors"))
    tensors = {key: value for file in files for key, value in load_file(file).items()}
    del config.quantization_config
    model = kind.from_config(config, dtype=dtype)
    for layer in [key.removesuffix(".qweight") for key in tensors if key.endswith(".qweight")]:
        parts = {p: tensors.pop(f"{layer}.{p}") for p in _PACKED if f"{layer}.{p}" in tensors}
        weight = _weight(f"{name}: {layer}", parts, str(form), dtype)
        model.get_submodule(layer).weight = nn.Parameter(weight, requires_grad=False)
    found = model.load_state_dict(tensors, strict=False, assign=False)
    tied = set(model.all_tied_weights_keys) if config.tie_word_embeddings else set[str]()
    known = {key for key, value in model.named_parameters() if _is_packed(value)}
    if missing := set(found.missing_keys) - known - tied:
        raise SourceError(name, f"has no {', '.join(sorted(missing))}", "give a complete folder")
    return model


def _weight(
    who: str, parts: Mapping[str, torch.Tensor], form: str, dtype: torch.dtype
) -> IntxUnpackedToInt8Tensor:
    """Unpack a layer: (out, in) values of -8 to 7, scales and zero points for each group."""
    scales = parts["scales"].T.contiguous()
    if form.startswith("gptq"):
        values = _columns(parts["qweight"].T, _GPTQ)
        zeros = _columns(parts["qzeros"], _GPTQ).T + (form == "gptq")
    else:
        values, zeros = _columns(parts["qweight"], _AWQ).T, _columns(parts["qzeros"], _AWQ).T
    group = values.shape[1] // scales.shape[1]
    order = parts.get("g_idx")
    if order is not None and not torch.equal(order.long(), torch.arange(len(order)) // group):
        what = "has its groups in another order (desc_act), which no backend takes"
        raise SourceError(who, what, "quantise it without desc_act")
    least = 1 << (_BITS - 1)
    made: IntxUnpackedToInt8Tensor = IntxUnpackedToInt8Tensor(
        (values - least).to(torch.int8).contiguous(),
        scales.to(dtype),
        (zeros - least).to(torch.int8).contiguous(),
        INT4,
        (1, group),
        dtype,
        None,
    )
    return made


def _columns(packed: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return the 4-bit numbers in the last dimension of int32 values, eight of each."""
    places = torch.tensor([order.index(column) for column in range(_EACH)])
    numbers = (packed[..., None] >> (_BITS * places)) & ((1 << _BITS) - 1)
    return numbers.flatten(-2)


def _is_packed(value: torch.Tensor) -> bool:
    return isinstance(value, IntxUnpackedToInt8Tensor)


def _fields(config: Any) -> dict[str, Any]:
    fields = getattr(config, "quantization_config", None) or {}
    return fields if isinstance(fields, dict) else fields.to_dict()
