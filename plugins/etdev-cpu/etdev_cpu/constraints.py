"""Nodes that XNNPACK's matcher takes and its compiler or its runtime then refuses."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import is_channels_last, unwritten_constants
from etdev_cpu.layers import CONVOLUTION, NORM, argument, chain, is_one_dimensional, shape_of

# Ops whose weights XNNPACK packs when it compiles.
_STATIC = (CONVOLUTION, NORM)
_RESHAPES = ("squeeze_copy", "unsqueeze_copy")


def unsupported(program: ExportedProgram, nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    """Yield the nodes among some that XNNPACK's compiler or runtime refuses, with the reason."""
    constants = unwritten_constants(program)
    signature = program.graph_signature
    buffers = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    matched = dict.fromkeys(nodes)
    for node in matched:
        sources = [chain(weight)[-1] for weight in node.all_input_nodes[1:]]
        origins = [source.name for source in sources]
        if _name(node).startswith(CONVOLUTION) and any(
            is_channels_last(source.meta.get("val")) for source in sources
        ):
            yield node, f"XNNPACK needs the weights of {_name(node)} contiguous"
        if _name(node).startswith(_STATIC) and not constants.keys() >= set(origins):
            what = f"XNNPACK needs the weights of {_name(node)} constant"
            written = buffers.intersection(origins).difference(constants)
            yield node, f"{what}, the method writes to them" if written else what
        bias = _bias(node)
        if bias is not None and chain(bias)[-1].name not in constants:
            yield node, f"XNNPACK crashes on a bias of {_name(node)} that is not constant"
        if _reshapes_two_dynamic_sizes(node):
            yield node, f"XNNPACK can't reshape {_name(node)} with more than one dynamic size"
        if _starts_before(node):
            yield node, "XNNPACK can't compile a slice that starts before the first row"
        if _leaves_with_its_source(node, matched):
            yield node, "XNNPACK has no copy of one of its outputs"


def of_constants_alone(program: ExportedProgram, constants: Container[str]) -> set[Node]:
    """Return the nodes that compute with constants alone, such as the transpose of a weight.

    Ops without inputs, such as `arange`, are computed at run time.
    """
    alone: set[Node] = set()
    for node in program.graph.nodes:
        sources = [] if node.op != "call_function" else node.all_input_nodes
        known = (source in alone or source.name in constants for source in sources)
        if sources and all(known):
            alone.add(node)
    return alone


def with_static_weights(match: Sequence[Node]) -> list[Node]:
    """Return a match with all weights of its convolutions and batch norms.

    A partitioner that may leave the weights of linear layers outside forgets the bias of these, and
    weights that a match before had, too.
    """
    weights = (
        weight
        for node in match
        if node.op == "call_function" and _name(node).startswith(_STATIC)
        for weight in node.all_input_nodes[1:]
        if weight.op == "placeholder"
    )
    return list(dict.fromkeys((*match, *weights)))


def _name(node: Node) -> str:
    return str(format_target_name(getattr(node.target, "__name__", str(node.target))))


def _bias(node: Node) -> Node | None:
    """Return the bias of a linear layer."""
    place = {"linear": 2, "addmm": 0}.get(_name(node).split(".")[0])
    return None if place is None else argument(node, place)


def _reshapes_two_dynamic_sizes(node: Node) -> bool:
    """Return True if a node has several dynamic sizes and is, or gets, a reshape."""
    reshape = _name(node).startswith(_RESHAPES)
    layer = _name(node).startswith(_STATIC) and is_one_dimensional(node)
    return (reshape or layer) and sum(not isinstance(size, int) for size in shape_of(node)) > 1


def _starts_before(node: Node) -> bool:
    """Return True if a slice starts further from the end than there are rows, as `x[-100:]` may."""
    if not _name(node).startswith("slice_copy"):
        return False
    source, dim, start = (*node.args, 0, None)[:3]
    size = source.meta["val"].shape[dim]  # type: ignore
    return isinstance(start, int) and isinstance(size, int) and start < -size


def _leaves_with_its_source(node: Node, matched: Container[Node]) -> bool:
    """Return True if a delegate returns a copy, and its source or another copy of it, too.

    XNNPACK's compiler removes copies, and then can't return one value twice.
    """
    source = node
    while _is_copy(source):
        source = source.all_input_nodes[0]
    if source is node:
        return False
    # What else reads it may come to lie in another delegate.
    read = [
        value
        for value in _with_copies(source)
        if value.op == "call_function" and not all(map(_is_copy, value.users))
    ]
    return len(read) > 1 and any(_leaves(value, matched) for value in read)


def _with_copies(node: Node) -> Iterator[Node]:
    yield node
    for user in filter(_is_copy, node.users):
        yield from _with_copies(user)


def _leaves(node: Node, matched: Container[Node]) -> bool:
    return any(user not in matched for user in node.users)


def _is_copy(node: Node) -> bool:
    return "clone" in getattr(node.target, "__name__", "")
