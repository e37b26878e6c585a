"""The pieces of ops put in place of these ops, in a copy of their graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.nodes import PIECES_OF, pieces_of
from etdev.graph.rebuild import note_simplified, rebuilt, simplified_in
from etdev.graph.signature import first_input, with_constants

# What a piece inherits from its op: where the user's code called it.
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


@frozen(eq=False)
class Expanded:
    """A program with some ops decomposed, and the name of the op that each new node is of."""

    program: ExportedProgram
    pieces: Mapping[str, str]


def inlined(program: ExportedProgram, pieces: Mapping[Node, ExportedProgram]) -> Expanded:
    """Put pieces in place of some ops; nodes that were not expanded keep their names."""
    copy, constants = _Copy(pieces), {}
    first = first_input(program.graph, program)
    for node in program.graph.nodes:
        if node is first:
            for op, inner in pieces.items():
                for constant, value in _constants(inner):
                    name = f"{op.name}__{constant.name}"
                    placeholder = copy.graph.create_node("placeholder", name, name=name)
                    placeholder.meta = dict(constant.meta)
                    copy.constants[op, constant.name] = placeholder
                    constants[placeholder.name] = value
        copy.add(node)
    copy.erase_unread()
    names = {node.name: new.name for node, new in copy.copies.items()}
    signature = with_constants(program.graph_signature, copy.graph, constants, names)
    changed = rebuilt(program, copy.graph, signature, constants=constants)
    note_simplified(changed, sum(map(simplified_in, pieces.values()), simplified_in(changed)))
    return Expanded(changed, copy.op_of)


def inline_in_branch(branch: GraphModule, pieces: Mapping[Node, ExportedProgram]) -> None:
    """Put pieces in place of some ops of a branch; their constants become its attributes."""
    copy = _Copy(pieces)
    for node in branch.graph.nodes:
        for constant, value in _constants(pieces[node]) if node in pieces else ():
            name = f"_{node.name}__{constant.name}"
            setattr(branch, name, value)
            copy.constants[node, constant.name] = copy.graph.create_node("get_attr", name)
            copy.constants[node, constant.name].meta = dict(constant.meta)
        copy.add(node)
    copy.erase_unread()
    branch.graph = copy.graph


def _constants(pieces: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """Yield the placeholder and the value of each constant that pieces bring along."""
    values = {**pieces.constants, **pieces.state_dict}
    inputs = {node.name: node for node in pieces.graph.find_nodes(op="placeholder")}
    for spec in pieces.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            yield inputs[spec.arg.name], values[str(spec.target)]


@define(eq=False)
class _Copy:
    """A copy of a graph with pieces in place of some ops.

    Args:
        copies: The node with the value of each node of the original.
        constants: The node with each constant of the pieces, by op and name in the pieces.
        op_of: The name of the op that each piece is of, by the piece's name.
    """

    pieces: Mapping[Node, ExportedProgram]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    constants: dict[tuple[Node, str], Node] = field(factory=dict)
    op_of: dict[str, str] = field(factory=dict)
    _results: dict[Node, Sequence[Any]] = field(factory=dict)

    def add(self, node: Node) -> None:
        """Add a node of the original or, if there are any, its pieces."""
        if node in self.pieces:
            self._results[node] = self._inline(node, self.pieces[node])
            if not isinstance(node.meta["val"], (list, tuple)):
                self.copies[node] = self._results[node][0]
        elif node.target is operator.getitem and node.args[0] in self._results:
            source, index = node.args
            self.copies[node] = self._results[source][index]  # type: ignore[index]
        else:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def _inline(self, node: Node, inner: ExportedProgram) -> list[Any]:
        given = dict(zip(inner.graph_signature.user_inputs, node.all_input_nodes, strict=False))
        inside: dict[Node, Node] = {}
        for piece in inner.graph.nodes:
            if piece.op == "placeholder":
                if constant := self.constants.get((node, piece.name)):
                    inside[piece] = constant
                elif piece.name in given:
                    inside[piece] = self.copies[given[piece.name]]
            elif piece.op != "output":
                copied = self.graph.create_node(
                    piece.op,
                    piece.target,
                    map_arg(piece.args, inside.__getitem__),
                    map_arg(piece.kwargs, inside.__getitem__),
                    name=f"{node.name}__{piece.name}",
                )
                self.op_of[copied.name] = node.name
                copied.meta = _inherited(node, piece)
                inside[piece] = copied
        return list(map_arg(inner.graph.output_node().args[0], inside.__getitem__))

    def erase_unread(self) -> None:
        """Erase pieces that nothing reads, such as unread outputs of an op.

        ExecuTorch doesn't emit them, but a delegate of them would have no outputs.
        """
        for node in reversed(list(self.graph.nodes)):
            if node.name in self.op_of and not node.users and not node.is_impure():
                self.graph.erase_node(node)
                del self.op_of[node.name]


def _inherited(node: Node, piece: Node) -> dict[str, Any]:
    """Return the metadata of a piece in place of an op."""
    meta = {**piece.meta, **{key: node.meta[key] for key in _INHERITED if key in node.meta}}
    if within := (*pieces_of(node), *pieces_of(piece)):
        meta[PIECES_OF] = within
    return meta
