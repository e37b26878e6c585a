"""Sequences that ops take for sorted. PyTorch leaves open what they return for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from etdev.upstream.modes import OpMode
from etdev.upstream.operators import OpOverload, arguments_of

_ATEN = torch.ops.aten
# Ops with the name of the argument that has to ascend along its last dim.
_SORTED = {
    _ATEN.bucketize.Tensor: "boundaries",
    _ATEN.bucketize.Scalar: "boundaries",
    _ATEN.searchsorted.Tensor: "sorted_sequence",
    _ATEN.searchsorted.Scalar: "sorted_sequence",
    _ATEN.embedding_bag.default: "offsets",
    _ATEN.embedding_bag.padding_idx: "offsets",
    _ATEN._embedding_bag.default: "offsets",
    _ATEN._embedding_bag_forward_only.default: "offsets",
}


def reads_sorted(op: Any) -> bool:
    """Return True for an op that takes one of its arguments for sorted."""
    return op in _SORTED


class SortedSequences(OpMode):
    """A mode in which an op raises a ValueError where a sequence that it takes isn't sorted."""

    def call(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an op after a look at its sequence, in the order that a `sorter` gives it."""
        if op in _SORTED:
            named = arguments_of(op, args, kwargs)
            sequence, sorter = named[_SORTED[op]], named.get("sorter")
            sequence = sequence if sorter is None else sequence.gather(-1, sorter)
            if not ascends(sequence):
                raise ValueError(f"{_SORTED[op]} of {op} are not sorted")
        return op(*args, **kwargs)


def ascends(value: torch.Tensor) -> bool:
    """Return True if no number along the last dim is smaller than the one before it, or NaN."""
    return bool((value[..., 1:] >= value[..., :-1]).all())
