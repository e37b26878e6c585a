"""Values of a case as Python: made from a seed, or those of the model of the user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

# Numbers that compilers and kernels may treat in a way of their own.
_EDGES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1e30)
_LEVELS = 4
# Of an int64.
_LARGEST = 2**63 - 1
_ONES, _NORMAL = "torch.ones({0})", "torch.randn({0})"
# Ways to make values, in the order in which they are tried in place of the model's.
FILLS = ("normal", "positive", "scaled", "ties", "levels", "edges", "ones", "zeros")


def fills(like: Any) -> Mapping[str, tuple[str, torch.dtype]]:
    """Return ways to make a tensor of a seed, by name.

    Each is an expression, with `{0}` for the sizes, and the dtype of its result.
    """
    floats = torch.float32
    if like.layout != torch.strided:
        return {"ones": (f"{_ONES}.to_sparse(layout={like.layout})", floats)}
    found = {"ones": (_ONES, floats)}
    if not like.numel():
        return found
    if like.dtype == torch.bool:
        return {**found, "normal": ("torch.rand({0}).gt(0.5)", torch.bool)}
    if like.is_complex():
        normal = "torch.randn({0}, dtype=torch.complex64)"
        return {**found, "normal": (normal, torch.complex64)}
    low, high = (float(each) for each in like.double().aminmax())
    if not like.is_floating_point():
        normal = f"torch.randint({int(low)}, {min(int(high) + 1, _LARGEST)}, [{{0}}])"
        return {**found, "normal": (normal, torch.int64)}
    found |= {"zeros": ("torch.zeros({0})", floats), "normal": (_NORMAL, floats)}
    if not (math.isfinite(low) and math.isfinite(high)):
        levels = like.unique().tolist()
        if len(levels) <= _LEVELS and not math.isnan(sum(map(abs, levels))):
            found["levels"] = (_chosen(levels), floats)
        return {**found, "edges": (_chosen(_EDGES), floats)}
    if low >= 0:
        found["positive"] = ("torch.rand({0}).add(0.5)", floats)
    if low < high:
        # One digit tells nothing of the values behind it.
        scaled = f"{_NORMAL}.mul({like.double().std():.0e}).add({like.double().mean():.0e})"
        found["scaled"] = (scaled, floats)
    return {**found, "ties": ("torch.randint(-2, 3, [{0}]).float()", floats)}


def made(like: Any, fill: str, shape: Sequence[int], dtype: torch.dtype) -> str:
    """Return the expression that makes a tensor of a seed.

    Args:
        like: A tensor whose memory order it has.
        fill: A name of `fills`; those that have no such values are made in the usual way.
        shape: Its sizes.
        dtype: Its dtype.
    """
    ways = fills(like)
    text, natural = ways.get(fill) or ways.get("normal") or ways["ones"]
    order = [*range(len(shape))]
    if like.layout == torch.strided and not like.is_contiguous() and 0 not in like.stride():
        order.sort(key=lambda dim: (-like.stride(dim), dim))
    sizes = ", ".join(str(shape[dim]) for dim in order)
    text = text.format(sizes) if shape else text.replace("[{0}]", "[]").format("[]")
    if order != sorted(order):
        text += f".permute({', '.join(str(order.index(dim)) for dim in range(len(shape)))})"
    return text if dtype == natural else f"{text}.to({dtype})"


def captured(like: Any, key: str, shape: Sequence[int], dtype: torch.dtype) -> str:
    """Return the expression that reads a tensor of the user's model, or its first part."""
    cut = f"[{', '.join(f':{size}' for size in shape)}]" if [*shape] != [*like.shape] else ""
    return f"values[{key!r}]{cut}" + (f".to({dtype})" if dtype != like.dtype else "")


def _chosen(numbers: Iterable[float]) -> str:
    """Return an expression that chooses from some numbers."""
    known = [*numbers]
    if len(known) == 1:
        return f"torch.full([{{0}}], {known[0]})"
    return f"torch.tensor({known})[torch.randint({len(known)}, [{{0}}])]"
