"""The parts of a shape env, which has torch's facts about symbolic sizes, that have no setter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, MutableSet
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sympy import StrictLessThan, false
from torch import SymInt, Tensor
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_unbacked_symbols,
)

# The attribute of a shape env for the places that fixed a symbol.
_FIXED = "_etdev_fixed"


def copied(env: ShapeEnv) -> ShapeEnv:
    """Return a shape env with all facts of another."""
    own = copy.copy(env)
    for name, value in vars(env).items():
        if isinstance(value, dict):
            known = copy.copy(value)
            # Some of them hold lists that grow.
            known.update({k: copy.copy(v) for k, v in value.items() if isinstance(v, list)})
            setattr(own, name, known)
        elif isinstance(value, (list, MutableSet)):
            # A shallow copy of torch's ordered sets would share their items.
            kind: Any = type(value)
            setattr(own, name, kind(value))
    own.fake_tensor_cache = {}
    own.pending_fresh_unbacked_symbols = []
    return own


def is_contiguous(value: Tensor) -> bool:
    """Return True if a fake tensor is contiguous, whatever sizes that depend on data are."""
    return is_contiguous_or_false(value)


def unbound_symbols(env: ShapeEnv | None) -> list[Any]:
    """Return the symbols that no node binds yet, a list to be changed; an empty one without env."""
    return env.pending_fresh_unbacked_symbols if env else []


@contextmanager
def noting_fixed(place: Callable[[], str]) -> Iterator[None]:
    """Note where traces fix dynamic sizes, which `fixed_at` returns; `place` names the op."""
    replace = ShapeEnv._set_replacement

    def noting(env: ShapeEnv, symbol: Any, value: Any, message: str) -> None:
        if value.is_number:
            vars(env).setdefault(_FIXED, {}).setdefault(symbol, place())
        replace(env, symbol, value, message)

    with patch.object(ShapeEnv, "_set_replacement", noting):
        yield


def fixed_at(size: SymInt) -> str:
    """Return where a trace fixed a size; empty if that was not noted."""
    known = vars(size.node.shape_env).get(_FIXED, {})
    return next((known[each] for each in size.node._expr.free_symbols if each in known), "")


def order_multiples(env: ShapeEnv) -> None:
    """Let an env say that no multiple of a number is smaller than it, where it can't decide."""
    env.__class__ = _OrderingEnv


def fix_ranges(env: ShapeEnv) -> None:
    """Let no trace change the range of a size that is known before a run."""
    if not isinstance(env.var_to_range, _FixedRanges):
        env.var_to_range = _FixedRanges(env.var_to_range)


class _FixedRanges(dict[Any, Any]):
    """Ranges of symbols; those of sizes that are known before a run can't be changed."""

    def __setitem__(self, symbol: Any, known: Any) -> None:
        if symbol not in self or free_unbacked_symbols(symbol):
            super().__setitem__(symbol, known)


class _OrderingEnv(ShapeEnv):
    """A shape env that takes numbers which depend on data for 1 or more, to order multiples."""

    def evaluate_expr(self, orig_expr: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().evaluate_expr(orig_expr, *args, **options)
        except GuardOnDataDependentSymNode:
            if isinstance(orig_expr, StrictLessThan) and orig_expr.lhs % orig_expr.rhs == 0:
                return false
            raise
