"""Decompositions without kernels for the ops that are not decomposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch.export import exported_program

from etdev.upstream.shortcuts.switch import Shortcut

DECOMPOSITIONS = Shortcut(
    "decompositions without kernels for every op",
    (
        "torch._C._dispatch_get_registrations_for_dispatch_key",
        "torch._export.utils._collect_all_valid_cia_ops_for_namespace",
        "torch._export.utils._is_preservable_cia_op",
        "torch.export.exported_program._is_preservable_cia_op",
        "torch.export.exported_program._override_composite_implicit_decomp",
    ),
)


@contextmanager
def quick_decompositions() -> Iterator[Callable[..., Any]]:
    """Spare each decomposition meanwhile what torch does for all of its ops.

    torch finds out which ops are composite, and registers some twenty kernels for each of them,
    even where the kernel does what the op does anyway: two thirds of the time of a small model.

    Yields:
        A function that calls another one, unless its result for the ops of now is known.
    """
    if not DECOMPOSITIONS.is_on:
        yield lambda function, *given: function(*given)
        return
    from torch._export import utils

    override: Any = exported_program._override_composite_implicit_decomp
    ops = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    kept = partial(_while_known, hash(tuple(ops)))
    listed, asked = (partial(kept, function) for function in _by_torch())

    def overridden(table: Mapping[Any, Callable[..., Any]]) -> Any:
        return override({op: call for op, call in table.items() if not _is_own(call)})

    with (
        patch.object(utils, "_collect_all_valid_cia_ops_for_namespace", listed),
        patch.object(exported_program, "_is_preservable_cia_op", asked),
        patch.object(exported_program, "_override_composite_implicit_decomp", overridden),
    ):
        yield kept


@cache
def _by_torch() -> tuple[Any, Any]:
    """Return torch's own functions, also while they are replaced."""
    from torch._export import utils

    return utils._collect_all_valid_cia_ops_for_namespace, utils._is_preservable_cia_op


@lru_cache(maxsize=4096)
def _while_known(known: int, function: Callable[..., Any], *given: Any) -> Any:
    """Return what torch lists of its ops, until some are registered, as by a custom library."""
    return function(*given)


def _is_own(call: Callable[..., Any]) -> bool:
    """Return True if torch made a decomposition that just calls the op's own one in C++."""
    return getattr(getattr(call, "func", call), "__name__", "") == "_special_op_to_decompose_cia"
