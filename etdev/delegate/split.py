"""Splitting of a method into a program for each partition."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from executorch.exir import EdgeCompileConfig
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx import Node

from etdev.errors import LoweringError
from etdev.graph.join import Join
from etdev.graph.rebuild import extracted
from etdev.graph.signature import argument, stored_values, unwritten_constants
from etdev.registry.answers import Annotations
from etdev.registry.snapshot import TensorWas
from etdev.schema.partition import Partition
from etdev.upstream.edge import unverified, with_parts
from etdev.upstream.shortcuts.graphs import interpreted_graph

_CONSTANT_ORDER = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@define(eq=False)
class Split:
    """A method and its partitions, each as a program that a backend can compile.

    Args:
        program: The program of the method; it is not changed.
        partitions: Its partitions, in plan order.
        annotations: Added to `node.meta` of their programs, by partition and node.
        programs: A program for each partition: owned constants first, then its inputs.
    """

    program: ExportedProgram
    partitions: Sequence[Partition]
    annotations: Mapping[str, Annotations] = field(factory=dict)
    programs: list[ExportedProgram] = field(init=False)
    _nodes: dict[str, Node] = field(init=False)
    _specs: dict[str, InputSpec] = field(init=False)
    _verifier: type[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._nodes = {node.name: node for node in self.program.graph.nodes}
        self._specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        self._verifier = unchecked()
        self.programs = [self._extract(partition) for partition in self.partitions]

    def isolated(self, partition: Partition) -> ExportedProgram:
        """Extract a partition again, for a backend that changes the program it compiles.

        Graph and weights are copies. torch's deep copy would rename an input `input`.
        """
        program = self._extract(partition)
        for tensors in (program.state_dict, program.constants):
            tensors.update({name: copy.deepcopy(value) for name, value in tensors.items()})
        return program

    def join(self, lowered: Sequence[LoweredBackendModule]) -> ExportedProgram:
        """Return the method with a delegate call in place of each partition, given in order."""
        return Join(self.program, self.partitions, lowered).build()

    def uncompiled(self) -> ExportedProgram:
        """Return the method with calls of delegates without payloads, to be looked at."""
        pairs = zip(self.programs, self.partitions, strict=True)
        lowered = [LoweredBackendModule(p, own.backend_id, b"", []) for p, own in pairs]
        # ExecuTorch's verifier refuses what a joined method may have, such as clones of constants.
        program = with_parts(self.program, verifiers=[self._verifier])
        return Join(program, self.partitions, lowered).build()

    def _extract(self, partition: Partition) -> ExportedProgram:
        nodes, inside = self._nodes, [c for c in partition.constants if c.inside]
        inputs = [copy.deepcopy(self._specs[constant.name]) for constant in inside]
        inputs.sort(key=lambda spec: _CONSTANT_ORDER.index(spec.kind))
        graph, root = interpreted_graph(), dict[str, Any]()
        copies = {nodes[s.arg.name]: graph.node_copy(nodes[s.arg.name]) for s in inputs}
        for tensor in partition.inputs:
            source = nodes[tensor.name]
            copies[source] = placeholder = graph.placeholder(source.name)
            placeholder.meta = dict(source.meta)
            inputs.append(InputSpec(InputKind.USER_INPUT, argument(placeholder), None))
        for name in partition.nodes:
            node = nodes[name]
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr":
                branch = getattr(self.program.graph_module, str(node.target))
                root[str(node.target)] = copy.deepcopy(branch)
        kinds: list[tuple[OutputKind, str, str | None]]
        kinds = [(OutputKind.BUFFER_MUTATION, c.update, c.target) for c in inside if c.update]
        kinds += [(OutputKind.USER_OUTPUT, tensor.name, None) for tensor in partition.outputs]
        results = [copies[nodes[name]] for _, name, _ in kinds]
        outputs = [
            OutputSpec(kind, argument(result), target)
            for (kind, _, target), result in zip(kinds, results, strict=True)
        ]
        output = graph.output(tuple(results))
        values = tuple(result.meta["val"] for result in results)
        output.meta = {**self.program.graph.output_node().meta, "val": values}
        for name, added in self.annotations.get(partition.name, {}).items():
            if nodes[name] in copies:
                copies[nodes[name]].meta.update(added)
        signature = ExportGraphSignature(input_specs=inputs, output_specs=outputs)
        return extracted(self.program, graph, signature, root, self._verifier)


def unchecked() -> type[Any]:
    """Return a verifier of the edge dialect for partitions, whose program was verified whole."""
    verifier: type[Any] = EXIREdgeDialectVerifier(unverified(EdgeCompileConfig()), class_only=True)
    return verifier


class Weights:
    """The weights of a model, which a .pte takes in part when delegates are compiled."""

    def __init__(self, programs: Mapping[str, ExportedProgram]) -> None:
        # As they are now, by method and target, but for those that the method writes.
        self._known: dict[tuple[str, str], TensorWas] = {}
        for method, program in programs.items():
            values = stored_values(program)
            for target in unwritten_constants(program).values():
                self._known[method, target] = TensorWas.of(values[target])

    def refuse_changes(self) -> None:
        """Refuse to emit weights that were changed since delegates took theirs."""
        for (method, target), was in self._known.items():
            if TensorWas.of(was.value) != was:
                what = f"{target!r} was changed after the model was lowered"
                raise LoweringError(method, what, "lower it again, or change a copy of the model")
