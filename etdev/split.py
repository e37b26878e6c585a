"""One sweep over a method: each partition becomes a program of its own and a call to it."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field
from executorch.exir import EdgeCompileConfig
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from etdev.order import run_order
from etdev.plan import Partition
from etdev.signature import argument, renamed

# A getitem that reads a delegate is not the op whose value it carries.
_FOREIGN_META = ("nn_module_stack", "source_fn_stack")
_CONSTANT_ORDER = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@define(eq=False)
class Split:
    """A method taken apart.

    Args:
        program: The program that was split; it is not changed.
        partitions: What was split out, in plan order.
        programs: A program for each partition: owned constants first, then its inputs.
    """

    program: ExportedProgram
    partitions: Sequence[Partition]
    programs: list[ExportedProgram] = field(factory=list)

    def join(self, lowered: Sequence[LoweredBackendModule]) -> ExportedProgram:
        """The method with a delegate call in place of each partition.

        Args:
            lowered: The compiled partitions, in the order of `programs`.
        """
        return _Join(self.program, self.partitions, lowered).build()


def split(program: ExportedProgram, partitions: Sequence[Partition]) -> Split:
    """Take the partitions out of a program, each into a program that a backend can compile."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    # The whole program was verified op by op; its parts need no second look.
    trusting = EXIREdgeDialectVerifier(EdgeCompileConfig(_check_ir_validity=False), class_only=True)
    parts = [_extract(program, part, nodes, specs, trusting) for part in partitions]
    return Split(program, partitions, parts)


def _extract(
    program: ExportedProgram,
    partition: Partition,
    nodes: dict[str, Node],
    specs: dict[str, InputSpec],
    verifier: type[Verifier],
) -> ExportedProgram:
    owned = [specs[c.name] for c in partition.constants if c.inside]
    owned.sort(key=lambda spec: _CONSTANT_ORDER.index(spec.kind))
    graph = Graph()
    copies: dict[Node, Node] = {}
    inputs = list(owned)
    for spec in owned:
        copies[nodes[spec.arg.name]] = graph.node_copy(nodes[spec.arg.name])
    for tensor in partition.inputs:
        source = nodes[tensor.name]
        placeholder = graph.placeholder(source.name)
        placeholder.meta = dict(source.meta)
        copies[source] = placeholder
        inputs.append(InputSpec(InputKind.USER_INPUT, argument(placeholder), None))
    root: dict[str, Any] = {}
    for name in partition.nodes:
        node = nodes[name]
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            root[str(node.target)] = getattr(program.graph_module, str(node.target))
    outputs = [
        OutputSpec(OutputKind.BUFFER_MUTATION, argument(copies[nodes[c.update]]), c.target)
        for c in partition.constants
        if c.inside and c.update
    ]
    results = [copies[nodes[spec.arg.name]] for spec in outputs]
    for tensor in partition.outputs:
        results.append(copies[nodes[tensor.name]])
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, argument(results[-1]), None))
    output = graph.output(tuple(results))
    output.meta = dict(program.graph.output_node().meta)
    signature = ExportGraphSignature(input_specs=inputs, output_specs=outputs)
    return _program(program, root, graph, signature, verifier)


def _program(
    owner: ExportedProgram,
    root: dict[str, Any],
    graph: Graph,
    signature: ExportGraphSignature,
    verifier: type[Verifier],
) -> ExportedProgram:
    targets = [spec.target for spec in signature.input_specs if spec.target is not None]
    _, in_spec = pytree.tree_flatten((tuple(signature.user_inputs), {}))
    _, out_spec = pytree.tree_flatten(signature.user_outputs)
    call = ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec)
    return ExportedProgram(
        root=root,
        graph=graph,
        graph_signature=signature,
        state_dict={t: owner.state_dict[t] for t in targets if t in owner.state_dict},
        range_constraints=dict(owner.range_constraints),
        module_call_graph=[ModuleCallEntry("", call)],
        constants={t: owner.constants[t] for t in targets if t in owner.constants},
        verifiers=[verifier],
    )


@define(eq=False)
class _Join:
    """Builds the graph that calls the delegates, in one walk over the original."""

    program: ExportedProgram
    partitions: Sequence[Partition]
    lowered: Sequence[LoweredBackendModule]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    root: dict[str, Any] = field(factory=dict)
    home: dict[str, int] = field(init=False)
    nodes: dict[str, Node] = field(init=False)
    inside: set[tuple[int, str]] = field(init=False)
    names: Iterator[str] = field(init=False)
    frozen: set[str] = field(init=False)
    planned: dict[str, Node] = field(factory=dict)
    handle: int = 0

    def build(self) -> ExportedProgram:
        self.nodes = {node.name: node for node in self.program.graph.nodes}
        self.home = {name: i for i, part in enumerate(self.partitions) for name in part.nodes}
        self.inside = {
            (i, c.name)
            for i, part in enumerate(self.partitions)
            for c in part.constants
            if c.inside
        }
        self.frozen = {
            constant.name
            for partition in self.partitions
            for constant in partition.constants
            if not constant.inside and not constant.mutated
        }
        taken = {str(node.target) for node in self.program.graph.find_nodes(op="get_attr")}
        names = (f"lowered_module_{number}" for number in itertools.count())
        self.names = (name for name in names if name not in taken)
        self.handle = max((n.meta.get("debug_handle") or 0 for n in self.nodes.values()), default=0)
        kept = self._copy_placeholders()
        for unit in run_order(self.program.graph, self.partitions):
            if isinstance(unit, int):
                self._call(unit)
            else:
                self._copy(unit)
        return self._finish(kept, self._copy_output())

    def _copy_placeholders(self) -> set[str]:
        """Keep the inputs, but the constants that only delegates hold now."""
        gone = {name for _, name in self.inside if self._only_inside(name)}
        kept = set()
        for node in self.program.graph.find_nodes(op="placeholder"):
            if node.name not in gone:
                self.copies[node] = self.graph.node_copy(node)
                kept.add(node.name)
        return kept

    def _only_inside(self, name: str) -> bool:
        """Whether every reader of a constant has it inside."""
        homes = (self.home.get(user.name) for user in self.nodes[name].users)
        return all(home is not None and (home, name) in self.inside for home in homes)

    def _copy(self, node: Node) -> None:
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        if node.op == "get_attr":
            value = getattr(self.program.graph_module, str(node.target))
            # ExecuTorch's later passes rewrite the branches of control flow in place.
            value = copy.deepcopy(value) if isinstance(value, GraphModule) else value
            self.root[str(node.target)] = value

    def _call(self, index: int) -> None:
        partition = self.partitions[index]
        inputs = [self._input(partition, self.nodes[tensor.name]) for tensor in partition.inputs]
        name = next(self.names)
        self.root[name] = self.lowered[index]
        attribute = self.graph.get_attr(name)
        call = self.graph.call_function(executorch_call_delegate, (attribute, *inputs))
        outputs = [self.nodes[tensor.name] for tensor in partition.outputs]
        # ExecuTorch gives each delegate the next free handle; its Inspector finds events by it.
        self.handle += 1
        call.meta["debug_handle"] = self.handle
        call.meta["val"] = [node.meta["val"] for node in outputs]
        for position, node in enumerate(outputs):
            item = self.graph.call_function(operator.getitem, (call, position))
            item.meta = {k: v for k, v in node.meta.items() if k not in _FOREIGN_META}
            self.copies[node] = item

    def _input(self, partition: Partition, node: Node) -> Node:
        """What a delegate is called with; a constant for another device in planned memory first.

        ExecuTorch copies inputs to the device from planned memory, and has none for a constant.
        """
        if partition.device.is_cpu or node.name not in self.frozen:
            return self.copies[node]
        if node.name not in self.planned:
            clone = self.graph.call_function(exir_ops.edge.aten.clone.default, (self.copies[node],))
            clone.meta = {"val": node.meta["val"]}
            self.planned[node.name] = clone
        return self.planned[node.name]

    def _copy_output(self) -> list[OutputSpec]:
        """Return what is left to return: new values of buffers that delegates own are not."""
        written = {
            constant.update
            for partition in self.partitions
            for constant in partition.constants
            if constant.inside and constant.update
        }
        old = self.program.graph.output_node()
        specs, results = [], []
        for spec, result in zip(
            self.program.graph_signature.output_specs, old.args[0], strict=True
        ):
            if not isinstance(result, Node) or result.name not in written:
                specs.append(spec)
                results.append(result)
        new = self.graph.output(map_arg(tuple(results), self.copies.__getitem__))
        new.meta = dict(old.meta)
        return specs

    def _finish(self, kept: set[str], outputs: Sequence[OutputSpec]) -> ExportedProgram:
        program = self.program
        names = {node.name: copy.name for node, copy in self.copies.items()}
        specs = [s for s in program.graph_signature.input_specs if s.arg.name in kept]
        targets = {spec.target for spec in specs}
        made = ExportedProgram(
            root=self.root,
            graph=self.graph,
            graph_signature=ExportGraphSignature(
                input_specs=specs,
                output_specs=[renamed(spec, names) for spec in outputs],
            ),
            state_dict={k: v for k, v in program.state_dict.items() if k in targets},
            range_constraints=dict(program.range_constraints),
            module_call_graph=program.module_call_graph,
            example_inputs=program.example_inputs,
            constants={
                k: v
                for k, v in program.constants.items()
                if k in targets or not isinstance(v, torch.Tensor)
            },
            verifiers=[program.verifier],
        )
        made.graph_module.meta.update(program.graph_module.meta)
        return made
