"""Functional programs: writes to tensors become new values, each written buffer its own."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.edge.in_place import with_new_values
from etdev.graph.ops import is_functional
from etdev.graph.rebuild import with_changed
from etdev.graph.writes import written_through
from etdev.schema.quirk import Apply, Stage

# Views that a functional program keeps, and calls that become views and copies which have no
# decomposition.
_PLAIN_VIEWS = {
    *("alias", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
    *("squeeze", "transpose", "unbind", "unsqueeze", "view"),
    *("contiguous", "expand_as", "flatten", "mT", "movedim", "narrow", "numpy_T", "ravel"),
    *("reshape", "reshape_as", "swapaxes", "swapdims", "t", "to", "type_as", "unflatten"),
    *("view_as",),
}


def functional(program: ExportedProgram, method: str, apply: Apply) -> ExportedProgram:
    """Make a program functional, so that plugins which want `silu` see it for `silu_`.

    Args:
        program: An ATen program; it is not changed.
        method: Its name.
        apply: Applies the quirks of a stage; those of ATen are for programs that write to memory
            which somebody else may see.
    """
    if _is_functional(program):
        return program
    if not _has_vmaps(program):
        easier = with_new_values(_with_splits(program))
        if _is_functional(easier):
            return easier
    program = apply(Stage.ATEN, program, method)
    ops = {node.target for node in written_through(program.graph)}
    table = torch.export.default_decompositions() if ops else {}
    # torch would take their results for new values.
    opened = {op: table[op] for op in ops if op in table}
    return program.run_decompositions(opened)  # type: ignore[no-any-return]


def _is_functional(program: ExportedProgram) -> bool:
    """Whether a program writes to nothing, and has no views but plain ones."""
    return all(
        not isinstance(node.target, OpOverload)
        or is_functional(node.target)
        or node.target._opname in _PLAIN_VIEWS
        for node in program.graph.nodes
    )


def _has_vmaps(program: ExportedProgram) -> bool:
    """Whether a program enters `torch.vmap`, whose values compute only between its calls."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in program.graph.nodes
    )


def _with_splits(program: ExportedProgram) -> ExportedProgram:
    """Write chunks as the splits that they are, which plugins may want whole."""
    chunk = torch.ops.aten.chunk.default
    chunks = program.graph.find_nodes(op="call_function", target=chunk)
    return with_changed(program, filter(_has_known_size, chunks), _split)


def _has_known_size(chunk: Node) -> bool:
    tensor, _, dim = (*chunk.args, 0)[:3]
    size = tensor.meta["val"].shape[dim]  # type: ignore[union-attr]
    return isinstance(size, int) and size > 0 and not chunk.kwargs


def _split(graph: Graph, chunk: Node) -> None:
    tensor, number, dim = (*chunk.args, 0)[:3]
    chunk.target = torch.ops.aten.split.Tensor
    chunk.args = (tensor, -(-tensor.meta["val"].shape[dim] // number), dim)  # type: ignore[union-attr]
