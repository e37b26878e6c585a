"""The pieces of ops put in place of these ops, in a copy of their graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.decomposition import Pieces
from etdev.graph.nodes import PIECES_OF, module_paths, pieces_of
from etdev.graph.rebuild import note, rebuilt, simplified_in
from etdev.graph.signature import renamed
from etdev.graph.source import line_of
from etdev.schema.simplification import Simplification

# What a piece inherits from its op: where the user's code called it.
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


@frozen(eq=False)
class Expanded:
    """A program with some ops decomposed.

    Args:
        program: The program; nodes that were not expanded keep their names.
        pieces: Name of the op that each new node is a piece of.
    """

    program: ExportedProgram
    pieces: Mapping[str, str]


def inlined(program: ExportedProgram, pieces: Mapping[Node, Pieces]) -> Expanded:
    """Put pieces in place of some ops; the program itself is not changed."""
    copy, specs, constants = _Copy(pieces), [], {}
    users = set(program.graph_signature.user_inputs)
    placed = False
    for node in program.graph.nodes:
        # A signature has its constants before the inputs of the user.
        if not placed and (node.op != "placeholder" or node.name in users):
            placed = True
            brought = (each for op, own in pieces.items() for each in _constants(op, own))
            for op, inner, value in brought:
                name = f"{op.name}__{inner.name}"
                placeholder = copy.graph.create_node("placeholder", name, name=name)
                placeholder.meta = dict(inner.meta)
                copy.constants[op, inner.name] = placeholder
                constants[name] = value
                argument = TensorArgument(placeholder.name)
                specs.append(InputSpec(InputKind.CONSTANT_TENSOR, argument, name))
        copy.add(node)
    copy.erase_unread()
    names = {node.name: new.name for node, new in copy.copies.items()}
    old = program.graph_signature
    inputs = [spec for spec in old.input_specs if spec.kind == InputKind.USER_INPUT]
    others = [spec for spec in old.input_specs if spec.kind != InputKind.USER_INPUT]
    outputs = [renamed(spec, names) for spec in old.output_specs]
    signature = ExportGraphSignature([*others, *specs, *inputs], outputs)
    changed = rebuilt(program, copy.graph, signature, constants=constants)
    note(changed, [*simplified_in(changed), *_notes(pieces)])
    return Expanded(changed, copy.op_of)


def inline_in_branch(branch: GraphModule, pieces: Mapping[Node, Pieces]) -> None:
    """Put pieces in place of some ops of a branch; their constants become its attributes."""
    copy = _Copy(pieces)
    for node in branch.graph.nodes:
        for _, inner, value in _constants(node, pieces[node]) if node in pieces else ():
            name = f"_{node.name}__{inner.name}"
            setattr(branch, name, value)
            copy.constants[node, inner.name] = attribute = copy.graph.create_node("get_attr", name)
            attribute.meta = dict(inner.meta)
        copy.add(node)
    copy.erase_unread()
    branch.graph = copy.graph


def _constants(op: Node, pieces: Pieces) -> Iterator[tuple[Node, Node, Any]]:
    """Yield the op, the placeholder and the value of each constant that pieces bring along."""
    program = pieces.program
    values = {**program.constants, **program.state_dict}
    inputs = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            yield op, inputs[spec.arg.name], values[str(spec.target)]


@define(eq=False)
class _Copy:
    """A copy of a graph with pieces in place of some ops.

    Args:
        pieces: The pieces by op.
        graph: The copy.
        copies: The node with the value of each node of the original.
        constants: The node with each constant of the pieces, by op and name in the pieces.
        op_of: The name of the op that each piece is of, by the piece's name.
    """

    pieces: Mapping[Node, Pieces]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    constants: dict[tuple[Node, str], Node] = field(factory=dict)
    op_of: dict[str, str] = field(factory=dict)
    _results: dict[Node, Sequence[Any]] = field(factory=dict)

    def add(self, node: Node) -> None:
        """Add a node of the original or, if there are any, its pieces."""
        if node in self.pieces:
            self._results[node] = self._inline(node, self.pieces[node].program)
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


def _notes(pieces: Mapping[Node, Pieces]) -> Iterator[Simplification]:
    """Yield what was simplified in pieces, by the names that they have in the whole program."""
    for node, of_node in pieces.items():
        inner = of_node.program
        sources = (source.name for source in node.all_input_nodes)
        names = dict(zip(inner.graph_signature.user_inputs, sources, strict=False))
        for each in simplified_in(inner):
            into = names.get(each.into, f"{node.name}__{each.into}") if each.into else ""
            module = "".join(module_paths(node)[-1:])
            name = f"{node.name}__{each.node}"
            yield evolve(each, node=name, into=into, module=module, line=line_of(node))
