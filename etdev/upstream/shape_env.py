"""The parts of a shape env, which has torch's facts about symbolic sizes, that have no setter."""

from __future__ import annotations

import copy
from collections.abc import MutableSet
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols


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


def unbound_symbols(env: ShapeEnv | None) -> list[Any]:
    """Return the symbols that no node binds yet, a list to be changed; an empty one without env."""
    return env.pending_fresh_unbacked_symbols if env else []


def fix_ranges(env: ShapeEnv) -> None:
    """Let no trace change the range of a size that is known before a run."""
    if not isinstance(env.var_to_range, _FixedRanges):
        env.var_to_range = _FixedRanges(env.var_to_range)


class _FixedRanges(dict[Any, Any]):
    """Ranges of symbols; those of sizes that are known before a run can't be changed."""

    def __setitem__(self, symbol: Any, known: Any) -> None:
        if symbol not in self or free_unbacked_symbols(symbol):
            super().__setitem__(symbol, known)
