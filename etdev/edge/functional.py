"""Functional programs: writes to tensors become new values, each written buffer its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import define, field
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputSpec
from torch.fx import Graph, Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from etdev.errors import LoweringError
from etdev.graph.ops import is_functional
from etdev.graph.rebuild import copy_graph, rebuilt

# Views that a functional program keeps, and calls that become views and copies which have no
# decomposition.
_PLAIN_VIEWS = {
    *("alias", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
    *("squeeze", "transpose", "unbind", "unsqueeze", "view"),
    *("contiguous", "flatten", "reshape", "to"),
}
_COPY = torch.ops.aten.copy_.default
_Weight = tuple[InputSpec, torch.Tensor]


def functional(program: ExportedProgram) -> ExportedProgram:
    """Make a program functional, so that plugins which want `silu` see it for `silu_`.

    Args:
        program: An ATen program; it is not changed.

    Raises:
        LoweringError: It writes to memory that two of its buffers share in part.
    """
    for node in program.graph.nodes:
        op = node.target
        if isinstance(op, OpOverload) and not is_functional(op) and op._opname not in _PLAIN_VIEWS:
            program = with_converted_sources(_with_own_sources(_merged(program)))
            return program.run_decompositions({})  # type: ignore[no-any-return]
    return program


def with_converted_sources(program: ExportedProgram) -> ExportedProgram:
    """Convert and expand what is copied to all of a buffer, if it has another dtype or shape.

    torch takes the source of such a copy for the buffer's new value as it is.

    Args:
        program: An ATen program; it is not changed.
    """
    converted = {node.name for node in program.graph.nodes if _is_converting_copy(node)}
    if not converted:
        return program
    graph = copy_graph(program.graph)
    for node in graph.find_nodes(op="call_function", target=_COPY):
        if node.name in converted:
            with graph.inserting_before(node):
                source = _as_like(graph, node.args[1], node.args[0].meta["val"])
            node.args = (node.args[0], source, *node.args[2:])
    return rebuilt(program, graph, program.graph_signature, program.graph_module)


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


@define(eq=False)
class _Writes:
    """Where a program writes, before it is functional.

    Args:
        graph: Its graph.
        places: For each tensor that is written, the positions of the nodes that write it.
    """

    graph: Graph
    places: dict[Node, list[int]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for position, node in enumerate(self.graph.nodes):
            for written in _written(node):
                self.places.setdefault(_owner(written), []).append(position)


def _owner(node: Node) -> Node:
    """The node whose memory a node's value is in."""
    while node.op == "call_function" and _aliases(node.target) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _aliases(op: object) -> bool:
    if not isinstance(op, OpOverload):
        return getattr(op, "__name__", "") == "getitem"
    return any(value.alias_info is not None for value in op._schema.returns)


def _written(node: Node) -> Iterator[Node]:
    """The arguments that a node writes to."""
    op = node.target
    if not isinstance(op, OpOverload):
        return
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            yield value


def _with_own_sources(program: ExportedProgram) -> ExportedProgram:
    """Clone what is copied to a buffer if it doesn't stay as it is, or is copied to a second one.

    torch takes the source of a copy for the buffer's new value, whatever happens to it later, and
    refuses a program in which two buffers have one new value.
    """
    shared = {node.name for node in _shared_copies(program.graph)}
    if not shared:
        return program
    graph = copy_graph(program.graph)
    for node in graph.find_nodes(op="call_function", target=_COPY):
        if node.name in shared:
            source = node.args[1]
            with graph.inserting_before(node):
                clone = graph.call_function(torch.ops.aten.clone.default, (source,))
            clone.meta = dict(source.meta)
            node.args = (node.args[0], clone, *node.args[2:])
    return rebuilt(program, graph, program.graph_signature, program.graph_module)


def _shared_copies(graph: Graph) -> Iterator[Node]:
    writes = _Writes(graph)
    sources: set[Node] = set()
    for position, node in enumerate(graph.nodes):
        if node.target is not _COPY or not isinstance(node.args[1], Node):
            continue
        target, source = node.args[0], node.args[1]
        if target.meta["val"].dtype != source.meta["val"].dtype:
            # The conversion is a new value.
            continue
        places = writes.places.get(_owner(source), ())
        changed = any(place > position for place in places)
        if changed or source in sources or (places and _is_whole_input(source)):
            yield node
        sources.add(source)


def _is_whole_input(node: Node) -> bool:
    """Whether a node's value is all of an input, perhaps just written."""
    while node.op == "call_function" and next(_written(node), None) is not None:
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def _merged(program: ExportedProgram) -> ExportedProgram:
    """Make buffers that are one tensor one input, if the method writes to it.

    Raises:
        LoweringError: Buffers share memory otherwise.
    """
    written = {node.name for node in _Writes(program.graph).places}
    same: dict[str, str] = {}
    for (spec, value), (other, earlier) in _neighbours(program):
        if written.isdisjoint((spec.arg.name, other.arg.name)):
            continue
        if _layout(value) == _layout(earlier):
            same.setdefault(spec.arg.name, other.arg.name)
        elif _overlap(value, earlier):
            raise LoweringError(
                "edge conversion",
                f"buffers {other.target!r} and {spec.target!r} share memory, the method writes to "
                "it, and a .pte would keep them apart",
                "register the whole tensor, and take views of it in the method",
            )
    return _without(program, same) if same else program


def _neighbours(program: ExportedProgram) -> Iterator[tuple[_Weight, _Weight]]:
    """Pairs of weights that are in one storage, the earlier one second."""
    values: Mapping[str, Any] = {**program.constants, **program.state_dict}
    storages: dict[int, list[_Weight]] = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target or "")
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        # Neither has memory of its own: a fake, and a quantised weight made of several tensors.
        if not isinstance(value, FakeTensor) and not is_traceable_wrapper_subclass(value):
            weights = storages.setdefault(value.untyped_storage().data_ptr(), [])
            yield from (((spec, value), earlier) for earlier in weights)
            weights.append((spec, value))


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    return value.storage_offset(), value.shape, value.stride(), value.dtype


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common, by the range that each spans."""
    (start, end), (first, last) = _span(one), _span(two)
    return start < last and first < end


def _span(value: torch.Tensor) -> tuple[int, int]:
    steps = zip(value.shape, value.stride(), strict=True)
    elements = 1 + sum((int(size) - 1) * int(stride) for size, stride in steps)
    start = int(value.storage_offset()) * value.element_size()
    return start, start + elements * value.element_size()


def _without(program: ExportedProgram, same: Mapping[str, str]) -> ExportedProgram:
    """A program without some inputs, with others in their place that come before them."""
    graph = copy_graph(program.graph)
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    for name, kept in same.items():
        inputs[name].replace_all_uses_with(inputs[kept])
        graph.erase_node(inputs[name])
    signature = program.graph_signature
    specs = [spec for spec in signature.input_specs if spec.arg.name not in same]
    outputs = list(signature.output_specs)
    return rebuilt(program, graph, ExportGraphSignature(specs, outputs), program.graph_module)
