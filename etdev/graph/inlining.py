"""The pieces of ops put in place of these ops, in a copy of their program."""

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
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.graph.decomposition import Pieces
from etdev.graph.nodes import PIECES_OF, module_paths, pieces_of
from etdev.graph.rebuild import rebuilt
from etdev.graph.signature import renamed
from etdev.graph.simplified import note, simplified_in
from etdev.graph.source import line_of
from etdev.schema.simplification import Simplification

# What a piece inherits from its op: where the user's code called it.
INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


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
    return _Inlining(program, pieces).build()


def inherited(node: Node, piece: Node) -> dict[str, Any]:
    """Return what the metadata of a piece is in place of an op."""
    meta = {**piece.meta, **{key: node.meta[key] for key in INHERITED if key in node.meta}}
    if within := (*pieces_of(node), *pieces_of(piece)):
        meta[PIECES_OF] = within
    return meta


@define(eq=False)
class _Inlining:
    """Copies a graph and puts pieces in place of some ops."""

    program: ExportedProgram
    pieces: Mapping[Node, Pieces]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    results: dict[Node, Sequence[Any]] = field(factory=dict)
    specs: list[InputSpec] = field(factory=list)
    constants: dict[str, Any] = field(factory=dict)
    lifted: dict[tuple[Node, str], Node] = field(factory=dict)
    op_of: dict[str, str] = field(factory=dict)

    def build(self) -> Expanded:
        """The new program."""
        users = set(self.program.graph_signature.user_inputs)
        placed = False
        for node in self.program.graph.nodes:
            if not placed and (node.op != "placeholder" or node.name in users):
                # A signature has its constants before the inputs of the user.
                self._place_constants(self._constants())
                placed = True
            self._copy(node)
        self._erase_unread()
        return Expanded(self._finish(), self.op_of)

    def _constants(self) -> list[tuple[Node, InputSpec]]:
        """Constants that decompositions bring along: their op and what they are."""
        return [
            (node, spec)
            for node, pieces in self.pieces.items()
            for spec in pieces.program.graph_signature.input_specs
            if spec.kind != InputKind.USER_INPUT
        ]

    def _place_constants(self, lifted: Sequence[tuple[Node, InputSpec]]) -> None:
        for node, spec in lifted:
            source = self.pieces[node].program
            name = f"{node.name}__{spec.arg.name}"
            placeholder = self.graph.create_node("placeholder", name, name=name)
            (inner,) = (n for n in source.graph.nodes if n.name == spec.arg.name)
            placeholder.meta = dict(inner.meta)
            self.specs.append(
                InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), name)
            )
            values = {**source.constants, **source.state_dict}
            self.constants[name] = values[str(spec.target)]
            self.lifted[node, inner.name] = placeholder

    def _copy(self, node: Node) -> None:
        if node in self.pieces:
            self.results[node] = self._inline(node)
            if not isinstance(node.meta["val"], (list, tuple)):
                self.copies[node] = self.results[node][0]
        elif node.target is operator.getitem and node.args[0] in self.results:
            source, index = node.args
            self.copies[node] = self.results[source][index]  # type: ignore[index]
        else:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def _inline(self, node: Node) -> list[Any]:
        inner = self.pieces[node].program
        given = dict(zip(inner.graph_signature.user_inputs, node.all_input_nodes, strict=False))
        inside: dict[Node, Node] = {}
        for inner_node in inner.graph.nodes:
            if inner_node.op == "placeholder":
                if placeholder := self.lifted.get((node, inner_node.name)):
                    inside[inner_node] = placeholder
                elif inner_node.name in given:
                    inside[inner_node] = self.copies[given[inner_node.name]]
            elif inner_node.op == "output":
                return list(map_arg(inner_node.args[0], inside.__getitem__))
            else:
                inside[inner_node] = self._piece(node, inner_node, inside)
        raise AssertionError("a graph without an output node")

    def _piece(self, node: Node, inner: Node, inside: Mapping[Node, Node]) -> Node:
        piece = self.graph.create_node(
            inner.op,
            inner.target,
            map_arg(inner.args, inside.__getitem__),
            map_arg(inner.kwargs, inside.__getitem__),
            name=f"{node.name}__{inner.name}",
        )
        self.op_of[piece.name] = node.name
        piece.meta = inherited(node, inner)
        return piece

    def _erase_unread(self) -> None:
        """Erase pieces that nothing reads: an op's outputs that nobody wanted.

        ExecuTorch doesn't emit them, but a delegate of them would have no outputs.
        """
        for node in reversed(list(self.graph.nodes)):
            if node.name in self.op_of and not node.users and not node.is_impure():
                self.graph.erase_node(node)
                del self.op_of[node.name]

    def _finish(self) -> ExportedProgram:
        names = {node.name: copy.name for node, copy in self.copies.items()}
        old = self.program.graph_signature
        users = [s for s in old.input_specs if s.kind == InputKind.USER_INPUT]
        others = [s for s in old.input_specs if s.kind != InputKind.USER_INPUT]
        signature = ExportGraphSignature(
            input_specs=[*others, *self.specs, *users],
            output_specs=[renamed(spec, names) for spec in old.output_specs],
        )
        root = self.program.graph_module
        program = rebuilt(self.program, self.graph, signature, root, self.constants)
        note(program, [*simplified_in(program), *self._notes()])
        return program

    def _notes(self) -> Iterator[Simplification]:
        """What was simplified in pieces, by the names that they have here."""
        for node, pieces in self.pieces.items():
            inner = pieces.program
            sources = (source.name for source in node.all_input_nodes)
            names = dict(zip(inner.graph_signature.user_inputs, sources, strict=False))
            for each in simplified_in(inner):
                into = names.get(each.into, f"{node.name}__{each.into}") if each.into else ""
                module = "".join(module_paths(node)[-1:])
                name = f"{node.name}__{each.node}"
                yield evolve(each, node=name, into=into, module=module, line=line_of(node))
