"""The pieces of ops put in place of these ops, in a copy of their graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from attrs import frozen
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.nodes import PIECES_OF, pieces_of
from etdev.graph.rebuild import copy_graph, note_simplified, rebuilt, simplified_in
from etdev.graph.signature import first_input, stored_values
from etdev.graph.symbols import fake_mode

# The node with each constant of the pieces, by op and name in the pieces.
Placed = dict[tuple[Node, str], Node]
# What a piece inherits from its op: where the user's code called it.
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


@frozen(eq=False)
class Expanded:
    """A program with some ops decomposed, and the name of the op that each new node is of."""

    program: ExportedProgram
    pieces: Mapping[str, str]


def inlined(program: ExportedProgram, pieces: Mapping[Node, ExportedProgram]) -> Expanded:
    """Put pieces in place of some ops; nodes that were not expanded keep their names."""
    graph, constants = copy_graph(program.graph), dict[str, Any]()
    copies = dict(zip(program.graph.nodes, graph.nodes, strict=True))
    placed: Placed = {}
    with graph.inserting_before(copies[first_input(program.graph, program)]):
        for op, inner in pieces.items():
            for constant, value in _constants(inner):
                name = f"{op.name}__{constant.name}"
                node = graph.create_node("placeholder", name, name=name)
                node.meta = dict(constant.meta)
                placed[copies[op], constant.name], constants[node.name] = node, value
    op_of = _inline({copies[op]: inner for op, inner in pieces.items()}, placed)
    # Readers of a value are in the order of the graph again.
    changed = rebuilt(program, copy_graph(graph), constants=constants)
    note_simplified(changed, sum(map(simplified_in, pieces.values()), simplified_in(changed)))
    return Expanded(changed, op_of)


def inline_in_branch(branch: GraphModule, pieces: Mapping[Node, ExportedProgram]) -> None:
    """Put pieces in place of some ops of a branch; their constants become its attributes."""
    placed: Placed = {}
    for op, inner in pieces.items():
        for constant, value in _constants(inner):
            name = f"_{op.name}__{constant.name}"
            setattr(branch, name, value)
            with branch.graph.inserting_before(op):
                node = branch.graph.create_node("get_attr", name)
            node.meta = dict(constant.meta)
            placed[op, constant.name] = node
    _inline(pieces, placed)
    branch.recompile()


def _constants(pieces: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """Yield the placeholder and the value of each constant that pieces bring along."""
    values = stored_values(pieces)
    inputs = pieces.graph.find_nodes(op="placeholder")
    for spec, node in zip(pieces.graph_signature.input_specs, inputs, strict=True):
        if spec.target is not None:
            yield node, values[spec.target]


def _inline(pieces: Mapping[Node, ExportedProgram], placed: Placed) -> dict[str, str]:
    """Put pieces in place of ops, given in the order of their graph, and of the ops' getitems.

    Returns:
        The name of the op that each piece is of, by the piece's name.
    """
    op_of: dict[str, str] = {}
    # The last one first, so that no op has the pieces of another as inputs yet.
    for op, inner in reversed(list(pieces.items())):
        graph, inside = op.graph, dict[Node, Node]()
        given = dict(zip(inner.graph_signature.user_inputs, op.all_input_nodes, strict=False))
        with graph.inserting_before(op):
            for piece in inner.graph.nodes:
                if piece.op == "placeholder":
                    if source := placed.get((op, piece.name)) or given.get(piece.name):
                        inside[piece] = source
                elif piece.op != "output":
                    inside[piece] = copied = graph.create_node(
                        piece.op,
                        piece.target,
                        map_arg(piece.args, inside.__getitem__),
                        map_arg(piece.kwargs, inside.__getitem__),
                        name=f"{op.name}__{piece.name}",
                    )
                    copied.meta = _inherited(op, piece)
                    op_of[copied.name] = op.name
        results: Any = map_arg(inner.graph.output_node().args[0], inside.__getitem__)
        if isinstance(op.meta["val"], (list, tuple)):
            for item in list(op.users):
                item.replace_all_uses_with(results[item.args[1]])
                graph.erase_node(item)
        else:
            op.replace_all_uses_with(results[0])
        graph.erase_node(op)
        # ExecuTorch doesn't emit unread pieces, but a delegate of them would have no outputs.
        for piece in reversed(inside.values()):
            if piece.name in op_of and not piece.users and not piece.is_impure():
                graph.erase_node(piece)
                del op_of[piece.name]
    return op_of


def call(source: Node, op: Any, *args: Any, **options: Any) -> Node:
    """Call an op where the graph of a node inserts, with the origin that the node has."""
    made = source.graph.call_function(op, args, options)
    made.meta = {key: source.meta[key] for key in (*_INHERITED, "custom") if key in source.meta}
    values, keywords = map_arg((args, options), lambda argument: argument.meta["val"])
    with fake_mode([source]) or nullcontext():
        made.meta["val"] = op(*values, **keywords)
    return made


def _inherited(node: Node, piece: Node) -> dict[str, Any]:
    """Return the metadata of a piece in place of an op."""
    meta = {**piece.meta, **{key: node.meta[key] for key in _INHERITED if key in node.meta}}
    if within := (*pieces_of(node), *pieces_of(piece)):
        meta[PIECES_OF] = within
    return meta
