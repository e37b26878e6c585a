"""Decompositions that ExecuTorch and torch have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from executorch.exir.tracer import _default_decomposition_table
from torch._export import utils

from etdev.upstream.operators import OpOverload, base_name

Table = Mapping[Any, Callable[..., Any]]


def executorch_table() -> Table:
    """Return the decompositions that ExecuTorch applies."""
    return _default_decomposition_table()  # type: ignore[no-any-return]


def further_tables() -> tuple[Table, Table]:
    """Return the decompositions of torch's reference implementations and of its compiler."""
    # Importing the first registers the reference implementations.
    from torch._decomp import decomposition_table
    from torch._inductor.decomposition import decompositions

    return decomposition_table, decompositions


def primitive_pieces(op: OpOverload) -> Callable[..., Any] | None:
    """Return the ATen function that a primitive of torch stands for, or None."""
    primitive = getattr(torch._prims, base_name(op), None)
    return getattr(primitive, "impl_aten", None)


@contextmanager
def ops_listed_once() -> Iterator[None]:
    """List the decomposable ops of each namespace once for all decompositions meanwhile.

    torch goes through all of its ops for every decomposition, which is a tenth of the time that a
    small model takes.
    """
    name = "_collect_all_valid_cia_ops_for_namespace"
    listed = getattr(utils, name, None)
    if listed is None:
        yield
        return
    setattr(utils, name, cache(listed))
    try:
        yield
    finally:
        setattr(utils, name, listed)
