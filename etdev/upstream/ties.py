"""Equal values, whose order PyTorch leaves open in some ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define

from etdev.upstream.modes import OpMode
from etdev.upstream.operators import OpOverload, arguments_of

_ATEN = torch.ops.aten
# Ops that return values and their places along a dim, the last one by default.
_OPEN = {
    *(_ATEN.sort.default, _ATEN.sort.stable, _ATEN.topk.default, _ATEN.kthvalue.default),
    *(_ATEN.median.dim, _ATEN.nanmedian.dim, _ATEN.mode.default),
}


def leaves_open(op: Any) -> bool:
    """Return True for an op whose result may depend on the order of equal values."""
    return op in _OPEN or op is _ATEN.argsort.default


@define(eq=False, slots=False)
class ShuffledTies(OpMode):
    """A mode in which ops take equal values in a random order, where PyTorch leaves it open.

    Args:
        generator: Generator of random numbers.
    """

    generator: torch.Generator

    def call(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an op on values that are shuffled along its dim, and return their own places."""
        named = arguments_of(op, args, kwargs)
        if op not in _OPEN or named.get("stable") or not named["self"].dim():
            return op(*args, **kwargs)
        value, dim = named["self"], named.get("dim", -1)
        order = torch.randperm(value.shape[dim], generator=self.generator)
        values, places = op(**{**named, "self": value.index_select(dim, order)})
        return values, order[places]
