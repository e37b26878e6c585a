"""Expansion: ops that were kept whole are decomposed after all where no plugin took them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen
from executorch.exir import EdgeCompileConfig
from executorch.exir.tracer import _default_decomposition_table
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.graph.decomposition import Finish, Pieces, Table, decompose, key_of
from etdev.graph.nodes import module_paths
from etdev.graph.ops import aten_op
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


FormulaOf = Callable[[Node], Callable[..., Any] | None]
Simplify = Callable[[ExportedProgram], ExportedProgram]


@define(eq=False)
class Expander:
    """Decomposes whole ops of edge programs; the same op on the same shapes only once.

    Args:
        compile_config: The edge conversion's; not changed.
        formula_of: The decomposition of a node that ExecuTorch leaves whole; None if it has none.
        simplify: Takes out of pieces what computes nothing new; None leaves them as they are.
        corrected: Decompositions instead of ExecuTorch's.
        finish: What else the conversion does with a program that is decomposed by the table.
        finishes: Whether that decomposes an op.
        table: All decompositions, but for the ops that its caller wants whole.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    formula_of: FormulaOf = field(default=lambda node: None)
    simplify: Simplify | None = None
    corrected: Table = field(factory=dict)
    finish: Finish = field(default=lambda program, table: program)
    finishes: Callable[[object], bool] = field(default=lambda op: False)
    _known: dict[Hashable, Pieces] = field(factory=dict)
    _simpler: dict[Hashable, Pieces] = field(factory=dict)
    table: Table = field(init=False)

    def __attrs_post_init__(self) -> None:
        table = {**_default_decomposition_table(), **self.corrected}
        for op in self.compile_config.preserve_ops:
            table.pop(op, None)
        self.table = table

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Those of some whole ops that have a decomposition."""
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if self._has_pieces(nodes[name], program)]

    def expand(self, program: ExportedProgram, names: Iterable[str]) -> Expanded:
        """Decompose some whole ops of a program; the program itself is not changed.

        A node is its name, in every form of a method: the pieces of an op have the same names
        whichever other ops are expanded with it.
        """
        wanted = set(names)
        if not wanted:
            return Expanded(program, {})
        pieces = {
            node: self._simplified(node, program)
            for node in program.graph.nodes
            if node.name in wanted
        }
        return _Inlining(program, pieces).build()

    def formula_pieces(self, node: Node, program: ExportedProgram) -> Pieces | None:
        """The pieces of a node that has a formula; None if it has none, or if that can't do it.

        Args:
            node: A node of the program or of one of its branches.
            program: An edge-dialect program.
        """
        if self.formula_of(node) is None:
            return None
        pieces = self._pieces(node, program)
        return None if pieces.trivial else pieces

    def _has_pieces(self, node: Node, program: ExportedProgram) -> bool:
        # Most ops are in no table, which spares tracing them.
        op = aten_op(node.target)
        if op not in self.table and self.formula_of(node) is None and not self.finishes(op):
            return False
        return not self._pieces(node, program).trivial

    def _simplified(self, node: Node, program: ExportedProgram) -> Pieces:
        """The pieces of an op by themselves, so that they are the same in every form."""
        pieces = self._pieces(node, program)
        if self.simplify is None or pieces.trivial:
            return pieces
        key = key_of(node)
        if key not in self._simpler:
            self._simpler[key] = evolve(pieces, program=self.simplify(pieces.program))
        return self._simpler[key]

    def _pieces(self, node: Node, program: ExportedProgram) -> Pieces:
        key = key_of(node)
        if key not in self._known:
            self._known[key] = decompose(
                node,
                program,
                self.compile_config,
                self.table,
                self.formula_of(node),
                self.finish,
            )
        return self._known[key]


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
        piece.meta = dict(inner.meta)
        piece.meta.update({key: node.meta[key] for key in INHERITED if key in node.meta})
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
