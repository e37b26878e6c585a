"""Decompositions that ExecuTorch and torch have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from executorch.exir.tracer import _default_decomposition_table
from torch._export import utils
from torch.export import exported_program

from etdev.upstream.operators import OpOverload, base_name

Table = Mapping[Any, Callable[..., Any]]
_by_torch: Any = utils._collect_all_valid_cia_ops_for_namespace, utils._is_preservable_cia_op


def executorch_table() -> Table:
    """Return the decompositions that ExecuTorch applies."""
    with quick_decompositions() as kept:
        return dict(kept(_default_decomposition_table).items())


def further_pieces(op: OpOverload) -> Callable[..., Any] | None:
    """Return how torch itself decomposes an op; for a primitive, the ATen op that it stands for."""
    if op.namespace == "prims":
        own = getattr(torch._prims, base_name(op), None)
        # torch's own conversion writes to a new tensor, as no functional program may.
        converts = own is torch._prims.convert_element_type
        return torch.Tensor.to if converts else getattr(own, "impl_aten", None)
    # Importing the first registers the reference implementations.
    from torch._decomp import decomposition_table
    from torch._inductor.decomposition import decompositions

    # The compiler's table comes last, since it has exceptions for its own code.
    return decomposition_table.get(op) or decompositions.get(op)


@contextmanager
def quick_decompositions() -> Iterator[Callable[..., Any]]:
    """Spare each decomposition meanwhile what torch does for all of its ops.

    torch finds out which ops are composite, and registers some twenty kernels for each of them,
    even where the kernel does what the op does anyway: two thirds of the time of a small model.
    """
    override: Any = exported_program._override_composite_implicit_decomp
    ops = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    kept = partial(_while_known, hash(tuple(ops)))
    listed, asked = (partial(kept, function) for function in _by_torch)

    def overridden(table: Table) -> Any:
        return override({op: call for op, call in table.items() if not _is_own(call)})

    with (
        patch.object(utils, "_collect_all_valid_cia_ops_for_namespace", listed),
        patch.object(exported_program, "_is_preservable_cia_op", asked),
        patch.object(exported_program, "_override_composite_implicit_decomp", overridden),
    ):
        yield kept


@lru_cache(maxsize=4096)
def _while_known(known: int, function: Callable[..., Any], *given: Any) -> Any:
    """Return what torch lists of its ops, until some are registered, as by a custom library."""
    return function(*given)


def _is_own(call: Callable[..., Any]) -> bool:
    """Return True if torch made a decomposition that just calls the op's own one in C++."""
    return getattr(getattr(call, "func", call), "__name__", "") == "_special_op_to_decompose_cia"
