"""Expansion: ops that were kept whole are decomposed after all, where nobody took them."""

from __future__ import annotations

import copy
import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig, to_edge
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from etdev.signature import argument, renamed

# What a part inherits from the op it is a part of: where the user's code called it.
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "debug_handle")


@frozen(eq=False)
class Parts:
    """What an op decomposes into.

    Args:
        program: Edge program whose inputs are the op's tensors and symbolic sizes in order of use.
        trivial: The op has no decomposition; the program is that op again.
    """

    program: ExportedProgram
    trivial: bool


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

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Those of some whole ops that have a decomposition."""
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if not self._parts(nodes[name], program).trivial]

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

    def _parts(self, node: Node, program: ExportedProgram) -> Parts:
        key = _key(node)
        if key not in self._known:
            self._known[key] = _decompose(node, program, self.compile_config)
        return self._known[key]


def _key(node: Node) -> Hashable:
    """Equal for two nodes exactly if they decompose alike."""

    def look(value: Any) -> Hashable:
        if isinstance(value, Node):
            value = value.meta["val"]
        if isinstance(value, torch.Tensor):
            sizes = (*map(str, value.shape), "|", *map(str, value.stride()))
            return ("tensor", str(value.dtype), sizes, str(value.device))
        if isinstance(value, (list, tuple)):
            return tuple(look(item) for item in value)
        return (type(value).__name__, str(value))

    # Two nodes that read one tensor twice and two tensors are not alike.
    reads = [node.all_input_nodes.index(n) for n in _leaves(node)]
    kwargs = tuple((name, look(value)) for name, value in sorted(node.kwargs.items()))
    return (node.target, look(node.args), kwargs, tuple(reads))


def _leaves(node: Node) -> list[Node]:
    return [n for n in pytree.tree_leaves((node.args, dict(node.kwargs))) if isinstance(n, Node)]


def _decompose(node: Node, owner: ExportedProgram, compile_config: EdgeCompileConfig) -> Parts:
    """Run one op alone through ExecuTorch's own decomposition and edge conversion."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for index, source in enumerate(node.all_input_nodes):
        copies[source] = graph.placeholder(f"arg_{index}")
        copies[source].meta = {"val": source.meta["val"]}
    op: Any = getattr(node.target, "_op", node.target)
    call = graph.call_function(
        op, map_arg(node.args, copies.__getitem__), map_arg(node.kwargs, copies.__getitem__)
    )
    call.meta = {"val": node.meta["val"]}
    results = _results(graph, call)
    graph.output(tuple(results))
    signature = ExportGraphSignature(
        input_specs=[InputSpec(InputKind.USER_INPUT, argument(n), None) for n in copies.values()],
        output_specs=[OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in results],
    )
    _, in_spec = pytree.tree_flatten((tuple(signature.user_inputs), {}))
    _, out_spec = pytree.tree_flatten(tuple(signature.user_outputs))
    program = ExportedProgram(
        root=GraphModule(torch.nn.Module(), graph),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints=dict(owner.range_constraints),
        module_call_graph=[
            ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec)),
        ],
        constants={},
    )
    # A custom op is no core ATen op and needs no complaint: it stays as it is.
    config = copy.copy(compile_config)
    config._check_ir_validity = False
    edge = to_edge(program, compile_config=config).exported_program()
    return Parts(edge, trivial=bool(edge.graph.find_nodes(op="call_function", target=node.target)))


def _results(graph: Graph, call: Node) -> list[Node]:
    """An op's outputs as separate nodes."""
    values = call.meta["val"]
    if not isinstance(values, (list, tuple)):
        return [call]
    results = []
    for index, value in enumerate(values):
        item = graph.call_function(operator.getitem, (call, index))
        item.meta = {"val": value}
        results.append(item)
    return results


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
    lifted: dict[tuple[Node, Node], Node] = field(factory=dict)
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

    def _constants(self) -> list[tuple[Node, Node]]:
        """Constants that decompositions bring along: their op and their placeholder."""
        found = []
        for node, parts in self.parts.items():
            known = parts.program.graph_signature.inputs_to_lifted_tensor_constants
            for inner in parts.program.graph.find_nodes(op="placeholder"):
                if inner.name in known:
                    found.append((node, inner))
        return found

    def _place_constants(self, lifted: Sequence[tuple[Node, Node]]) -> None:
        for node, inner in lifted:
            name = f"{node.name}__{inner.name}"
            placeholder = self.graph.create_node("placeholder", name, name=name)
            placeholder.meta = dict(inner.meta)
            self.specs.append(
                InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), name)
            )
            source = self.parts[node].program
            target = source.graph_signature.inputs_to_lifted_tensor_constants[inner.name]
            self.constants[name] = source.constants[target]
            self.lifted[node, inner] = placeholder

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
        given = iter(node.all_input_nodes)
        inside: dict[Node, Node] = {}
        for part in inner.graph.nodes:
            if part.op == "placeholder":
                inside[part] = self.lifted.get((node, part)) or self.copies[next(given)]
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
