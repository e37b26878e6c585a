"""Inputs of a method: loaded from a file, made at random, checked, and laid out in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from etdev.errors import RunError, SourceError, first_line
from etdev.pte.artifact import MethodArtifact, Value
from etdev.pte.read import read
from etdev.schema.dtypes import dtype_name
from etdev.upstream.trees import flat


def load_inputs(path: str | Path) -> list[Any]:
    """Load inputs from a file that `torch.save` wrote: a tensor or a list of values."""
    try:
        value = torch.load(path, weights_only=True)
    except Exception as error:
        # Torch's own line has three sentences of advice about pickles.
        why = first_line(error).partition(" In PyTorch")[0].partition(". ")[0]
        what = f"can't be loaded as inputs ({why})"
        cure = "write them with torch.save([tensor, ...], path)"
        raise SourceError(str(path), what, cure) from error
    return [value] if isinstance(value, torch.Tensor) else flat(value)


def random_inputs(path: str | Path, method: str = "forward", seed: int = 0) -> list[Any]:
    """Make inputs that fit a method: normal floats, and zeros where a number may be an index."""
    generator, facts = torch.Generator().manual_seed(seed), read(path).method(method)
    try:
        return [_random(value, generator) for value in facts.inputs]
    # A damaged file may have negative sizes, or dtypes that torch doesn't have.
    except (RuntimeError, AttributeError) as error:
        what = f"has inputs that can't be made ({first_line(error)})"
        raise RunError(f"method {method!r}", what, "give --inputs") from error


def prepared(method: MethodArtifact, inputs: Sequence[Any]) -> list[Any]:
    """Check inputs of a method, and copy tensors into memory as the runtime reads it.

    The runtime reads dense memory in the order of dimensions that the method takes, whatever the
    strides of a tensor are. A .pte need not have an input for one that is None.

    Raises:
        RunError: The runtime would misread an input, or fail on it with a code.
    """
    if len(inputs) != len(method.inputs):
        inputs = [value for value in inputs if value is not None]
    _check(method, inputs)
    return list(map(_laid_out, inputs, method.inputs))


def _check(method: MethodArtifact, inputs: Sequence[Any]) -> None:
    who = f"method {method.name!r}"
    if len(inputs) != len(method.inputs):
        what = f"takes {len(method.inputs)} inputs, got {len(inputs)}"
        raise RunError(who, what, _signature(method))
    for index, (given, wanted) in enumerate(zip(inputs, method.inputs, strict=True)):
        if wanted.kind == "Tensor" and not _fits(given, wanted):
            text = repr(given)
            if isinstance(given, torch.Tensor):
                text = f"{dtype_name(given.dtype)} {_sizes(given.shape)}"
            raise RunError(who, f"input {index} is {text}", _signature(method))


def _laid_out(value: Any, wanted: Value) -> Any:
    if not isinstance(value, torch.Tensor) or value.dim() != len(wanted.order):
        return value
    dense = torch.empty_permuted(value.shape, wanted.order, dtype=value.dtype)
    return dense.copy_(value.detach())


def _fits(given: Any, wanted: Value) -> bool:
    if not isinstance(given, torch.Tensor) or dtype_name(given.dtype) != wanted.dtype:
        return False
    if given.dim() != len(wanted.sizes):
        return False
    sizes = zip(given.shape, wanted.sizes, strict=True)
    return all(a == b or (wanted.dynamic and a <= b) for a, b in sizes)


def _signature(method: MethodArtifact) -> str:
    texts = [
        f"{value.dtype} {'up to ' if value.dynamic else ''}{_sizes(value.sizes)}"
        if value.kind == "Tensor"
        else value.kind.lower()
        for value in method.inputs
    ]
    return f"it takes {', '.join(texts) or 'none'}"


def _sizes(sizes: Sequence[int]) -> str:
    return "x".join(str(size) for size in sizes) or "scalar"


def _random(value: Value, generator: torch.Generator) -> Any:
    if value.kind != "Tensor":
        return {"Int": 1, "Double": 1.0, "Bool": True}.get(value.kind)
    dtype = getattr(torch, value.dtype)
    if dtype.is_floating_point:
        return torch.randn(value.sizes, generator=generator).to(dtype)
    return torch.zeros(value.sizes, dtype=dtype)
