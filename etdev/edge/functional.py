"""Functional programs: writes to tensors become new values, each written buffer its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.edge.dropouts import with_idle_dropouts
from etdev.edge.in_place import with_new_values
from etdev.edge.overlaps import with_merged_buffers
from etdev.edge.writes import Writes, owner_of, written_by, written_through
from etdev.graph.ops import is_functional
from etdev.graph.rebuild import with_changed

# Views that a functional program keeps, and calls that become views and copies which have no
# decomposition.
_PLAIN_VIEWS = {
    *("alias", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
    *("squeeze", "transpose", "unbind", "unsqueeze", "view"),
    *("contiguous", "expand_as", "flatten", "mT", "movedim", "narrow", "numpy_T", "ravel"),
    *("reshape", "reshape_as", "swapaxes", "swapdims", "t", "to", "type_as", "unflatten"),
    *("view_as",),
}
_COPY = torch.ops.aten.copy_.default


def functional(program: ExportedProgram) -> ExportedProgram:
    """Make a program functional, so that plugins which want `silu` see it for `silu_`.

    Args:
        program: An ATen program; it is not changed.

    Raises:
        LoweringError: It writes to memory that two of its buffers share in part.
    """
    if _is_functional(program):
        return program
    if not _has_vmaps(program):
        easier = with_new_values(_with_splits(program))
        if _is_functional(easier):
            return easier
    program = with_converted_sources(_with_own_sources(with_merged_buffers(program)))
    program = with_idle_dropouts(program)
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


def with_converted_sources(program: ExportedProgram) -> ExportedProgram:
    """Convert and expand what is copied to all of a buffer, if it has another dtype or shape.

    torch takes the source of such a copy for the buffer's new value as it is.

    Args:
        program: An ATen program; it is not changed.
    """
    return with_changed(program, filter(_is_converting_copy, program.graph.nodes), _convert_source)


def _convert_source(graph: Graph, copy: Node) -> None:
    target, source, *others = copy.args
    copy.args = (target, _as_like(graph, source, target.meta["val"]), *others)  # type: ignore[arg-type, union-attr]


def _is_converting_copy(node: Node) -> bool:
    """Whether a node copies to all of a buffer what has another dtype or shape."""
    if node.target is not _COPY or not isinstance(node.args[1], Node):
        return False
    target, source = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    same = target.dtype == source.dtype and target.shape == source.shape
    return not same and _is_whole_input(node.args[0])  # type: ignore[arg-type]


def _as_like(graph: Graph, source: Node, wanted: torch.Tensor) -> Node:
    """A value in the dtype and shape of another, which it can be broadcast to."""
    if source.meta["val"].dtype != wanted.dtype:
        source = _call(graph, torch.ops.aten._to_copy.default, source, dtype=wanted.dtype)
    if source.meta["val"].shape != wanted.shape:
        source = _call(graph, torch.ops.aten.expand.default, source, list(wanted.shape))
    return source


def _call(graph: Graph, op: OpOverload, source: Node, *args: Any, **options: Any) -> Node:
    node = graph.call_function(op, (source, *args), options)
    node.meta = {**source.meta, "val": op(source.meta["val"], *args, **options)}
    return node


def _with_own_sources(program: ExportedProgram) -> ExportedProgram:
    """Clone what is copied to a buffer if it doesn't stay as it is, or is copied to a second one.

    torch takes the source of a copy for the buffer's new value, whatever happens to it later, and
    refuses a program in which two buffers have one new value.
    """
    return with_changed(program, _shared_copies(program.graph), _clone_source)


def _clone_source(graph: Graph, copy: Node) -> None:
    target, source, *others = copy.args
    clone = graph.call_function(torch.ops.aten.clone.default, (source,))
    clone.meta = dict(source.meta)  # type: ignore[union-attr]
    copy.args = (target, clone, *others)


def _shared_copies(graph: Graph) -> Iterator[Node]:
    writes = Writes(graph)
    sources: set[Node] = set()
    for position, node in enumerate(graph.nodes):
        if node.target is not _COPY or not isinstance(node.args[1], Node):
            continue
        target, source = node.args[0], node.args[1]
        if target.meta["val"].dtype != source.meta["val"].dtype:
            # The conversion is a new value.
            continue
        places = writes.places.get(owner_of(source), ())
        changed = any(place > position for place in places)
        if changed or source in sources or (places and _is_whole_input(source)):
            yield node
        sources.add(source)


def _is_whole_input(node: Node) -> bool:
    """Whether a node's value is all of an input, perhaps just written."""
    while node.op == "call_function" and next(written_by(node), None) is not None:
        node = node.all_input_nodes[0]
    return node.op == "placeholder"
