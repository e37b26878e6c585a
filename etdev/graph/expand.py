"""Expansion: ops that were kept whole are decomposed after all, where nobody took them."""

from __future__ import annotations

import operator
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig
from executorch.exir.tracer import _default_decomposition_table
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.decomposition import Parts, decompose, key_of
from etdev.graph.ops import aten_op
from etdev.graph.signature import renamed

# What a part inherits from the op it is a part of: where the user's code called it.
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


@frozen(eq=False)
class Expanded:
    """A program with some ops decomposed.

    Args:
        program: The program; what was not expanded is called the same as before.
        parts: Name of the op that each new node is a part of.
    """

    program: ExportedProgram
    parts: Mapping[str, str]


@define(eq=False)
class Expander:
    """Decomposes whole ops of edge programs; the same op on the same shapes only once.

    Args:
        compile_config: The edge conversion's; not changed.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    _known: dict[Hashable, Parts] = field(factory=dict)
    _table: Container[Any] = field(factory=_default_decomposition_table)

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Those of some whole ops that have a decomposition."""
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if self._has_parts(nodes[name], program)]

    def expand(self, program: ExportedProgram, names: Iterable[str]) -> Expanded:
        """Decompose some whole ops of a program; the program itself is not changed.

        The parts of an op are called the same whichever other ops are expanded with it.
        """
        wanted = set(names)
        if not wanted:
            return Expanded(program, {})
        parts = {
            node: self._parts(node, program) for node in program.graph.nodes if node.name in wanted
        }
        return _Inlining(program, parts).build()

    def _has_parts(self, node: Node, program: ExportedProgram) -> bool:
        # Most ops are in no table, which spares tracing them.
        return aten_op(node.target) in self._table and not self._parts(node, program).trivial

    def _parts(self, node: Node, program: ExportedProgram) -> Parts:
        key = key_of(node)
        if key not in self._known:
            self._known[key] = decompose(node, program, self.compile_config)
        return self._known[key]


@define(eq=False)
class _Inlining:
    """Copies a graph and puts parts in place of some ops."""

    program: ExportedProgram
    parts: Mapping[Node, Parts]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    results: dict[Node, Sequence[Any]] = field(factory=dict)
    specs: list[InputSpec] = field(factory=list)
    constants: dict[str, Any] = field(factory=dict)
    lifted: dict[tuple[Node, str], Node] = field(factory=dict)
    homes: dict[str, str] = field(factory=dict)

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
        module = GraphModule(self.program.graph_module, self.graph)
        return Expanded(self._finish(module), self.homes)

    def _constants(self) -> list[tuple[Node, InputSpec]]:
        """Constants that decompositions bring along: their op and what they are."""
        return [
            (node, spec)
            for node, parts in self.parts.items()
            for spec in parts.program.graph_signature.input_specs
            if spec.kind != InputKind.USER_INPUT
        ]

    def _place_constants(self, lifted: Sequence[tuple[Node, InputSpec]]) -> None:
        for node, spec in lifted:
            source = self.parts[node].program
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
        if node in self.parts:
            self.results[node] = self._inline(node)
            if not isinstance(node.meta["val"], (list, tuple)):
                self.copies[node] = self.results[node][0]
        elif node.target is operator.getitem and node.args[0] in self.results:
            source, index = node.args
            self.copies[node] = self.results[source][index]  # type: ignore[index]
        else:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def _inline(self, node: Node) -> list[Any]:
        inner = self.parts[node].program
        given = dict(zip(inner.graph_signature.user_inputs, node.all_input_nodes, strict=False))
        inside: dict[Node, Node] = {}
        for part in inner.graph.nodes:
            if part.op == "placeholder":
                if made := self.lifted.get((node, part.name)):
                    inside[part] = made
                elif part.name in given:
                    inside[part] = self.copies[given[part.name]]
            elif part.op == "output":
                return list(map_arg(part.args[0], inside.__getitem__))
            else:
                inside[part] = self._part(node, part, inside)
        raise AssertionError("a graph without an output node")

    def _part(self, node: Node, part: Node, inside: Mapping[Node, Node]) -> Node:
        made = self.graph.create_node(
            part.op,
            part.target,
            map_arg(part.args, inside.__getitem__),
            map_arg(part.kwargs, inside.__getitem__),
            name=f"{node.name}__{part.name}",
        )
        self.homes[made.name] = node.name
        made.meta = dict(part.meta)
        made.meta.update({key: node.meta[key] for key in _INHERITED if key in node.meta})
        return made

    def _finish(self, module: GraphModule) -> ExportedProgram:
        program = self.program
        names = {node.name: copy.name for node, copy in self.copies.items()}
        old = program.graph_signature
        users = [s for s in old.input_specs if s.kind == InputKind.USER_INPUT]
        others = [s for s in old.input_specs if s.kind != InputKind.USER_INPUT]
        return ExportedProgram(
            root=module,
            graph=module.graph,
            graph_signature=ExportGraphSignature(
                input_specs=[*others, *self.specs, *users],
                output_specs=[renamed(spec, names) for spec in old.output_specs],
            ),
            state_dict=program.state_dict,
            range_constraints=dict(program.range_constraints),
            module_call_graph=program.module_call_graph,
            example_inputs=program.example_inputs,
            constants={**program.constants, **self.constants},
            verifiers=[program.verifier],
        )
