"""Misfits: what XNNPACK's matcher takes and its compiler or its runtime then refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from torch.export import ExportedProgram
from torch.fx import Node

# Ops whose weights XNNPACK packs when it compiles.
_STATIC = ("convolution", "_native_batch_norm")


def misfits(program: ExportedProgram, nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    """The nodes among some that XNNPACK's matcher takes and its compiler or runtime can't."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    buffers = {n for n, target in signature.inputs_to_buffers.items() if target in written}
    for node in nodes:
        name = format_target_name(getattr(node.target, "__name__", str(node.target)))
        if name.startswith(_STATIC) and any(
            _origin(weight).name in buffers for weight in node.all_input_nodes[1:]
        ):
            yield node, f"XNNPACK needs the weights of {name} constant, the method writes to them"
        if _returned_with_its_source(node):
            yield node, "XNNPACK has no copy of one of its outputs"


def _origin(node: Node) -> Node:
    """The input that a weight is, before it is dequantised or transposed."""
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _returned_with_its_source(node: Node) -> bool:
    """Whether a method returns a copy, and also what it is a copy of or another copy of that.

    XNNPACK's compiler removes copies, and then can't return one value twice.
    """
    source = node
    while _is_copy(source):
        source = source.all_input_nodes[0]
    if source is node:
        return False
    values = [value for value in _with_copies(source) if value.op == "call_function"]
    return sum(map(_is_returned, values)) > 1 and any(map(_is_returned, _with_copies(node)))


def _with_copies(node: Node) -> Iterator[Node]:
    yield node
    for user in filter(_is_copy, node.users):
        yield from _with_copies(user)


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _is_copy(node: Node) -> bool:
    return "clone" in getattr(node.target, "__name__", "")
