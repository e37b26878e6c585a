"""Arrangement: how a graph's nodes are named, ordered and called, and what is noted on them.

ExecuTorch's `save` and `load` keep ops, values and symbolic sizes. They give arguments by keyword
that were given by position, name and order the results of an op anew, and keep few keys of
`node.meta`; backends read all of that. The arrangement goes beside the program and puts it back.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import SymBool, SymFloat, SymInt, Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.delegate.executors.plain import Stays, plain, restored
from etdev.upstream.trees import pytree

# Had from ExecuTorch's own program save.
_SAVED = frozenset({"val", "stack_trace", "from_node"})
# Where an op comes from, for people, in values of torch's own that can't be written down.
_LEFT = frozenset({"desc", "eager_input_vals", "original_aten", "seq_nr", "tensor_meta"})
_ITEM = "item"
_KINDS = ("placeholder", "call_function", _ITEM, "output")


def arrangement(graph: Graph) -> list[list[Any]]:
    """The arrangement of a graph, as JSON has it.

    Raises:
        Stays: A node calls something inside the program, or has an argument or a note that can't be
            written down.
    """
    return [_arranged(node) for node in graph.nodes]


def _arranged(node: Node) -> list[Any]:
    kind = _kind(node)
    if kind not in _KINDS:
        raise Stays(f"{node.name} refers to a graph or a value inside the program")
    try:
        arguments = plain(node.args, _name), plain(dict(node.kwargs), _name)
    except Stays as error:
        raise Stays(f"argument of {node.name}: {error}") from None
    notes = {}
    for key, value in node.meta.items():
        if key in _SAVED or key in _LEFT:
            continue
        try:
            notes[key] = plain(value)
        except Stays as error:
            raise Stays(f"meta[{key!r}] of {node.name}: {error}") from None
    value = node.meta.get("val")
    if any(_is_symbolic(item) for item in pytree.tree_leaves(value)):
        raise Stays(f"{node.name} has a dynamic size, of which ExecuTorch's save keeps too little")
    # ExecuTorch makes a tuple of several values, whatever it was, and none needs a gradient.
    return [kind, node.name, *arguments, notes, isinstance(value, list), _gradients(value)]


def _gradients(value: object) -> list[int]:
    """Which tensors of a value need a gradient, by number."""
    tensors = [item for item in pytree.tree_leaves(value) if isinstance(item, Tensor)]
    return [number for number, tensor in enumerate(tensors) if tensor.requires_grad]


def _set_gradients(value: object, wanted: list[int]) -> None:
    tensors = [item for item in pytree.tree_leaves(value) if isinstance(item, Tensor)]
    for number, tensor in enumerate(tensors):
        if tensor.requires_grad != (number in wanted):
            tensor.requires_grad_(number in wanted)


def _is_symbolic(value: object) -> bool:
    if isinstance(value, Tensor):
        # Sizes of branches can make strides symbolic alone.
        return any(map(_is_symbolic, (*value.shape, *value.stride(), value.storage_offset())))
    return isinstance(value, (SymInt, SymFloat, SymBool))


def _kind(node: Node) -> str:
    return _ITEM if node.target is operator.getitem else node.op


def _name(value: object) -> str | None:
    return value.name if isinstance(value, Node) else None


def arrange(program: ExportedProgram, nodes: list[list[Any]]) -> tuple[Graph, dict[str, str]]:
    """The graph of a program that was loaded, arranged as it was when it was saved.

    Args:
        program: The program; its graph is not changed.
        nodes: The arrangement.

    Returns:
        The graph, and the names of its nodes by those that they have in the program.

    Raises:
        Stays: It does not have the nodes that were saved.
    """
    # The results of ops are in another order, so they are found through their ops.
    rest = {kind: iter([n for n in program.graph.nodes if _kind(n) == kind]) for kind in _KINDS}
    items = {n.args[:2]: n for n in rest.pop(_ITEM)}
    graph, copies, sources = Graph(), dict[str, Node](), dict[Node, Node]()
    for kind, name, args, kwargs, notes, listed, gradients in nodes:
        arguments = restored(args, copies.__getitem__), restored(kwargs, copies.__getitem__)
        source: Node | None
        if kind == _ITEM:
            op, index = arguments[0]
            source = items.get((sources[op], index))
        else:
            source = next(rest[kind], None)
        if source is None:
            raise Stays(f"ExecuTorch loads the program without {name}")
        # A placeholder's target is its name.
        target = name if kind == "placeholder" else source.target
        node = graph.create_node(source.op, target, *arguments)
        node.name = name
        node.meta = {key: value for key, value in source.meta.items() if key in _SAVED}
        node.meta |= {key: restored(value) for key, value in notes.items()}
        if listed:
            node.meta["val"] = list(node.meta["val"])
        _set_gradients(node.meta.get("val"), gradients)
        copies[name], sources[node] = node, source
    for kind, more in rest.items():
        if surplus := next(more, None):
            raise Stays(f"ExecuTorch loads the program with another {kind}, {surplus.name}")
    return graph, {source.name: node.name for node, source in sources.items()}
