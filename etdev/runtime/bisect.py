"""Bisection: which delegate of a .pte departs from eager PyTorch, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, frozen
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from etdev.delegate.split import split
from etdev.errors import LoweringError, RunError
from etdev.graph.expand import Expander
from etdev.graph.nodes import module_paths
from etdev.lowerer import Decision
from etdev.pte import ptd
from etdev.pte.audit import differences
from etdev.pte.emit import load_quantised_kernels
from etdev.pte.read import Compiled, compiled, read
from etdev.runtime.compare import Difference, compare, flat
from etdev.runtime.run import execute
from etdev.schema.plan import MethodPlan, Partition
from etdev.stages import guarded

# The programs hold delegate calls, which the edge verifier rejects.
_UNVERIFIED = EdgeCompileConfig(_check_ir_validity=False)


@frozen
class Suspect:
    """One delegate, called with what eager PyTorch computes for its inputs.

    Args:
        partition: The planned partition that it was compiled from.
        modules: Paths of the source modules that its nodes come from, in graph order.
        output: Name of the node whose value departs most.
        difference: How far that value is from eager's.
    """

    partition: Partition
    modules: tuple[str, ...]
    output: str
    difference: Difference

    def departs(self, tolerance: float) -> bool:
        """Whether its error is above an absolute tolerance; nan always is."""
        return self.difference.exceeds(tolerance)


@define(eq=False)
class Bisection:
    """A method of a .pte whose delegates can be called one by one.

    Args:
        plan: The method's plan.
        program: Its edge-dialect program, with exactly the plan's nodes.
        compiled: The .pte's delegates by partition name.
        inputs: The method's inputs, flat.
        expander: Decomposes ops that no portable kernel runs.
    """

    plan: MethodPlan
    program: ExportedProgram
    compiled: Mapping[str, Compiled]
    inputs: Sequence[Any]
    expander: Expander

    def suspects(self) -> Iterable[Suspect]:
        """Call every delegate of the plan by itself, in the order in which they run."""
        values = self._eager()
        pieces = split(self.program, self.plan.partitions)
        for partition, program in zip(pieces.partitions, pieces.programs, strict=True):
            if partition.outputs:
                yield self._suspect(partition, self._delegate(partition, program), values)

    def swapped(self, suspect: Suspect, expected: Sequence[Any]) -> list[Difference] | None:
        """Run the whole method with one partition on portable kernels, and compare it with eager.

        Args:
            suspect: The delegate to do without.
            expected: Outputs of eager PyTorch, flat.

        Returns:
            A difference per output; None if no portable kernels run its ops.
        """
        try:
            return compare(self._without(suspect.partition), expected)
        except LoweringError:
            return None

    def _without(self, partition: Partition) -> list[Any]:
        whole = self.expander.decomposable(self.program, partition.nodes)
        program = self.expander.expand(self.program, whole).program
        others = [other for other in self.plan.partitions if other.name != partition.name]
        pieces = split(program, others)
        delegates = map(self._delegate, others, pieces.programs)
        joined = pieces.join(list(delegates))
        return _run(EdgeProgramManager({"forward": joined}, None, _UNVERIFIED), self.inputs)

    def _suspect(
        self, partition: Partition, delegate: LoweredBackendModule, values: Mapping[str, Any]
    ) -> Suspect:
        inputs = [values[tensor.name] for tensor in partition.inputs]
        expected = [values[tensor.name] for tensor in partition.outputs]
        differences = compare(_alone(delegate, inputs), expected)
        worst = max(range(len(differences)), key=lambda i: _badness(differences[i]))
        names = set(partition.nodes)
        inside = (node for node in self.program.graph.nodes if node.name in names)
        return Suspect(
            partition,
            tuple(dict.fromkeys(_modules(inside))),
            partition.outputs[worst].name,
            differences[worst],
        )

    def _eager(self) -> dict[str, Any]:
        """Compute the value of every node that enters or leaves a partition in PyTorch."""
        ends = [(*partition.inputs, *partition.outputs) for partition in self.plan.partitions]
        recorder = _Recorder(self.program, {tensor.name for tensors in ends for tensor in tensors})
        with torch.no_grad():
            recorder.run(*_arguments(self.program, self.inputs))
        return recorder.values

    def _delegate(self, partition: Partition, program: ExportedProgram) -> LoweredBackendModule:
        compiled = self.compiled[partition.name]
        return LoweredBackendModule(
            edge_program=program,
            backend_id=compiled.backend_id,
            processed_bytes=compiled.payload,
            compile_specs=[CompileSpec(spec.key, spec.value) for spec in compiled.compile_specs],
            named_data_store_output=compiled.named_data,
        )


def bisection(path: Path, decision: Decision, method: str, inputs: Sequence[Any]) -> Bisection:
    """Make the delegates of a .pte callable one by one.

    Args:
        path: The .pte.
        decision: The decision for the same model with the same plugins, devices and pins.
        method: The method to look at.
        inputs: Its inputs, flat.

    Raises:
        RunError: The .pte differs from the decision's plan, or keeps its data in a .ptd.
        ArtifactError: It can't be read.
    """
    artifact = read(path)
    problems = differences(decision.plan, artifact.methods)
    if problems:
        what = f"is not what this model and these plugins give: {problems[0]}"
        raise RunError(str(path), what, "give the --plugin, --device, --pin it was lowered with")
    if ptd.outside(artifact):
        raise RunError(str(path), "keeps data in a .ptd", "lower it without external data")
    plan = decision.plan[method]
    delegates = dict(zip(plan.delegates, compiled(path, method), strict=True))
    return Bisection(plan, decision.programs[method], delegates, inputs, decision.expander)


class _Recorder(Interpreter):
    """Runs a program in PyTorch and records the values of some nodes."""

    def __init__(self, program: ExportedProgram, wanted: set[str]) -> None:
        super().__init__(program.graph_module)
        self.wanted = wanted
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node.name in self.wanted:
            # A parameter that enters a delegate as an input is a plain tensor to the runtime.
            self.values[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        return value


class _Alone(nn.Module):
    """A module that calls one delegate."""

    def __init__(self, delegate: LoweredBackendModule) -> None:
        super().__init__()
        self.delegate = delegate

    def forward(self, *inputs: Any) -> Any:
        return self.delegate(*inputs)


def _alone(delegate: LoweredBackendModule, inputs: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        program = torch.export.export(_Alone(delegate), tuple(inputs))
        return _run(to_edge(program, compile_config=_UNVERIFIED), inputs)


def _run(manager: EdgeProgramManager, inputs: Sequence[Any]) -> list[Any]:
    load_quantised_kernels(manager)
    program = guarded("to_executorch", manager.to_executorch)
    return execute(program.buffer, inputs)


def _arguments(program: ExportedProgram, inputs: Sequence[Any]) -> list[Any]:
    """The graph's inputs in its order, constants included."""
    constants = {**program.constants, **program.state_dict}
    values = iter(flat(inputs))
    return [
        constants[spec.target] if spec.target in constants else next(values)
        for spec in program.graph_signature.input_specs
    ]


def _modules(nodes: Iterable[Node]) -> Iterable[str]:
    for node in nodes:
        yield from module_paths(node)[-1:]


def _badness(difference: Difference) -> float:
    """Order differences by their error, with nan as the worst."""
    error = difference.max_error
    return float("inf") if error != error else error
