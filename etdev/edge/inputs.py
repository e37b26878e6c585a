"""Inputs: what ExecuTorch's runtime can be given, in a memory order that its kernels know."""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram

from etdev.errors import EtdevWarning, LoweringError, first_line
from etdev.graph.layout import has_known_order, has_plain_order, orders_volumes, traced_contiguous
from etdev.graph.nodes import is_unbounded, upper_bound
from etdev.graph.signature import unwritten_constants

# Ops that say where in memory a value is.
_PLACES = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)


def refuse_fixed_sizes(method: str, program: ExportedProgram) -> None:
    """Refuse a dynamic size that ExecuTorch's passes silently fixed to the example's.

    The .pte would fail on every other size, in the first kernel that looks at it.

    Raises:
        LoweringError: There is one.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            # Still a symbol, but with one possible value.
            if not isinstance(size, int) and size.node.maybe_as_int() is not None:
                raise LoweringError(
                    "edge conversion",
                    f"ExecuTorch fixes dynamic size {dim} of input {node.name!r} of method "
                    f"{method!r} to {size}",
                    "export it with that size, or without the op that needs it fixed",
                )


def warn_of_unbounded_sizes(method: str, program: ExportedProgram) -> None:
    """Warn of dynamic sizes without an upper bound, for which ExecuTorch plans the example's.

    The runtime refuses inputs with more elements, at the first call that has some.
    """
    users = set(program.graph_signature.user_inputs)
    named: set[str] = set()
    for node in program.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if node.name not in users or not is_unbounded(size) or str(size) in named:
                continue
            named.add(str(size))
            warnings.warn(
                f"edge conversion: dynamic size {dim} of input {node.name!r} of method {method!r} "
                f"has no upper bound, and ExecuTorch plans memory for {upper_bound(size)}, the "
                "example's; larger inputs fail at run time, so export it with Dim(..., max=...)",
                EtdevWarning,
                stacklevel=2,
            )


def refuse_strides(method: str, program: ExportedProgram) -> None:
    """Refuse inputs in a memory order that ExecuTorch writes down and the runtime doesn't take.

    Raises:
        LoweringError: There is one.
    """
    users = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in users and not has_known_order(node.meta.get("val")):
            raise LoweringError(
                "edge conversion",
                f"input {node.name!r} of method {method!r} is neither contiguous nor channels "
                "last, and ExecuTorch's runtime would read a contiguous one in its order",
                "export it with contiguous inputs",
            )


def with_plain_strides(method: str, program: ExportedProgram) -> ExportedProgram:
    """Make inputs and constants contiguous that are neither that nor channels last.

    So are volumes that the program itself stores channels last. The runtime takes no others, and
    would read a contiguous one in the order of the example.

    Args:
        method: Its name, for messages.
        program: An ATen program; it is not changed.

    Raises:
        LoweringError: What it computes depends on that order.
    """
    others = {
        node.name
        for node in program.graph.find_nodes(op="placeholder")
        if not has_plain_order(node.meta.get("val"))
    }
    others -= _written(program)
    if not others and not orders_volumes(program):
        return program
    try:
        if any(node.target in _PLACES for node in program.graph.nodes):
            raise ValueError("as_strided reads memory directly")
        return traced_contiguous(program, others)
    except (RuntimeError, ValueError) as error:
        names = ", ".join(sorted(others)) or "volumes"
        raise LoweringError(
            "edge conversion",
            f"{names} of method {method!r} would have to be contiguous, which it can't be traced "
            f"with ({first_line(error)})",
            "export it with contiguous inputs and weights",
        ) from error


def _written(program: ExportedProgram) -> set[str]:
    """Constants that the method writes, which keep their memory."""
    signature = program.graph_signature
    constants = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    return constants.difference(unwritten_constants(program))
