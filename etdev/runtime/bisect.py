"""Bisection: which delegate of a .pte departs from eager PyTorch, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, field, frozen
from executorch.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
)
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch.export import ExportedProgram

from etdev.delegate.split import split
from etdev.edge.source import FORWARD
from etdev.errors import LoweringError, RunError
from etdev.graph.expand import Expander
from etdev.graph.nodes import modules_of
from etdev.pte import ptd
from etdev.pte.audit import differences
from etdev.pte.emission_pass import EmissionPass
from etdev.pte.read import Compiled, compiled, read
from etdev.runtime.compare import Difference, compare
from etdev.runtime.decision import Decision
from etdev.runtime.recorder import recorded
from etdev.runtime.run import execute
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.quirk import Quirks, Stage
from etdev.upstream.call import guarded
from etdev.upstream.edge import unverified

# The programs hold delegate calls, which the edge verifier rejects.
UNVERIFIED = unverified(EdgeCompileConfig())


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
        quirks: The faults of upstream that are fixed or named.
        state: Values of its buffers before the call, by name; those of the program where missing.
    """

    plan: MethodPlan
    program: ExportedProgram
    compiled: Mapping[str, Compiled]
    inputs: Sequence[Any]
    expander: Expander
    quirks: Quirks
    state: Mapping[str, Any] = field(factory=dict)

    def suspects(self) -> Iterable[Suspect]:
        """Call every delegate of the plan by itself, in the order in which they run."""
        ends = [(*partition.inputs, *partition.outputs) for partition in self.plan.partitions]
        values = self.eager({tensor.name for tensors in ends for tensor in tensors})
        pieces = split(self.program, self.plan.partitions)
        for partition, program in zip(pieces.partitions, pieces.programs, strict=True):
            if partition.outputs:
                yield self._suspect(partition, self.delegate(partition, program), values)

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
        delegates = map(self.delegate, others, pieces.programs)
        return execute(emitted(pieces.join(list(delegates)), self.quirks), self.inputs)

    def _suspect(
        self, partition: Partition, delegate: LoweredBackendModule, values: Mapping[str, Any]
    ) -> Suspect:
        inputs = [values[tensor.name] for tensor in partition.inputs]
        expected = [values[tensor.name] for tensor in partition.outputs]
        differences = compare(execute(alone(delegate, inputs, self.quirks), inputs), expected)
        worst = max(range(len(differences)), key=lambda i: _badness(differences[i]))
        names = set(partition.nodes)
        inside = (node for node in self.program.graph.nodes if node.name in names)
        return Suspect(
            partition,
            modules_of(inside),
            partition.outputs[worst].name,
            differences[worst],
        )

    def eager(self, names: set[str]) -> dict[str, Any]:
        """Compute the values of some nodes in PyTorch."""
        return recorded(self.program, names, self.inputs, self.state)

    def delegate(self, partition: Partition, program: ExportedProgram) -> LoweredBackendModule:
        """The delegate of the .pte that a partition was compiled to."""
        compiled = self.compiled[partition.name]
        return LoweredBackendModule(
            edge_program=program,
            backend_id=compiled.backend_id,
            processed_bytes=compiled.payload,
            compile_specs=[CompileSpec(spec.key, spec.value) for spec in compiled.compile_specs],
            named_data_store_output=compiled.named_data,
        )


def bisection(
    path: Path,
    decision: Decision,
    method: str,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
) -> Bisection:
    """Make the delegates of a .pte callable one by one.

    Args:
        path: The .pte.
        decision: The decision for the same model with the same plugins, devices and pins.
        method: The method to look at.
        inputs: Its inputs, flat.
        state: Values of its buffers before the call, by name, if they are not the first ones.

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
    delegates = dict(zip(plan.delegates, compiled(path)[method], strict=True))
    program = decision.programs[method]
    return Bisection(
        plan, program, delegates, inputs, decision.expander, decision.quirks, state or {}
    )


class _Alone(nn.Module):
    """A module that calls one delegate."""

    def __init__(self, delegate: LoweredBackendModule) -> None:
        super().__init__()
        self.delegate = delegate

    def forward(self, *inputs: Any) -> Any:
        return self.delegate(*inputs)


def alone(delegate: LoweredBackendModule, inputs: Sequence[Any], quirks: Quirks) -> bytes:
    """Emit a program that calls one delegate with inputs such as these."""
    with torch.no_grad():
        program = torch.export.export(_Alone(delegate), tuple(inputs))
        manager = to_edge(program, compile_config=UNVERIFIED)
        return emitted(manager.exported_program(), quirks)


def emitted(program: ExportedProgram, quirks: Quirks) -> bytes:
    """Emit a program as it is, apart from the quirks of emission."""
    program = quirks.apply(Stage.PLANNED, program, FORWARD)
    manager = EdgeProgramManager({FORWARD: program}, None, UNVERIFIED)
    config = ExecutorchBackendConfig()
    config.sym_shape_eval_pass = EmissionPass(quirks, config.sym_shape_eval_pass, FORWARD)
    return bytes(guarded("to_executorch", lambda: manager.to_executorch(config)).buffer)


def _badness(difference: Difference) -> float:
    """Order differences by their error, with nan as the worst."""
    error = difference.max_error
    return float("inf") if error != error else error
