"""Bisection: the delegates of a .pte are run one by one and compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from torch.fx import Interpreter, Node

from etdev.delegate.split import Split
from etdev.edge.source import FORWARD
from etdev.errors import LoweringError, RunError
from etdev.graph.nodes import modules_of
from etdev.pte import ptd
from etdev.pte.audit import differences
from etdev.pte.emit import EmissionPass
from etdev.pte.read import Compiled, compiled, read
from etdev.runtime.compare import Difference, compare
from etdev.runtime.decision import Decision
from etdev.runtime.run import execute
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.quirk import Stage
from etdev.schema.stages import Listener
from etdev.upstream.edge import guarded, unverified

# The programs hold delegate calls, which the edge verifier rejects.
UNVERIFIED = unverified(EdgeCompileConfig())

# Emits a partition as a program of its own, from its program and its inputs; None if it can't be.
Emit = Callable[[Partition, ExportedProgram, Sequence[Any]], bytes | None]


@frozen(eq=False)
class Trial:
    """A part of a method as a .pte of its own, with its inputs and outputs in eager PyTorch."""

    partition: Partition
    program: bytes
    inputs: Sequence[Any]
    expected: Sequence[Any]


@frozen
class Suspect:
    """A delegate that was called with eager PyTorch's values for its inputs.

    Args:
        modules: Paths of the source modules of its nodes, in graph order.
        output: Name of the node whose value departs most, by `difference`.
    """

    partition: Partition
    modules: tuple[str, ...]
    output: str
    difference: Difference

    def departs(self, tolerance: float) -> bool:
        """Return True if its error is above an absolute tolerance, or nan."""
        return self.difference.exceeds(tolerance)


@frozen(eq=False)
class Search:
    """The delegates up to the first that departs from eager PyTorch by more than a tolerance.

    Args:
        suspects: The delegates that were called.
        tolerance: Largest absolute error of a delegate that agrees.
        guilty: The last one if it departs; None if all agree.
        swapped: Errors of the outputs with portable kernels in its place, if they run its ops.
    """

    suspects: Sequence[Suspect]
    tolerance: float
    guilty: Suspect | None = None
    swapped: Sequence[Difference] | None = None


@define(eq=False)
class Bisection:
    """A method of a .pte whose delegates can be called one by one.

    Args:
        compiled: The .pte's delegates by partition name.
        state: Values of its buffers before the call, by name; the program's for those left out.
    """

    decision: Decision
    plan: MethodPlan
    compiled: Mapping[str, Compiled]
    inputs: Sequence[Any]
    state: Mapping[str, Any] = field(factory=dict)

    @property
    def program(self) -> ExportedProgram:
        """The method's edge-dialect program, with exactly the plan's nodes."""
        return self.decision.programs[self.plan.method]

    def suspects(self) -> Iterator[Suspect]:
        """Call every delegate of the plan by itself, in the order in which they run."""
        for trial in self.delegates():
            found = compare(execute(trial.program, trial.inputs), trial.expected)
            errors = [difference.max_error for difference in found]
            # nan is the worst.
            worst = max(range(len(found)), key=lambda i: (errors[i] != errors[i], errors[i]))
            names = set(trial.partition.nodes)
            inside = (node for node in self.program.graph.nodes if node.name in names)
            output = trial.partition.outputs[worst].name
            yield Suspect(trial.partition, modules_of(inside), output, found[worst])

    def search(self, tolerance: float, expected: Sequence[Any], say: Listener) -> Search:
        """Call the delegates up to the first that departs, and run the method without that one.

        Args:
            tolerance: Largest absolute error of a delegate that agrees.
            expected: Outputs of the method in eager PyTorch, flat.
            say: Called with the progress.
        """
        called: list[Suspect] = []
        for suspect in self.suspects():
            called.append(suspect)
            say("bisect", f"{len(called)}/{len(self.plan.partitions)}")
            if suspect.departs(tolerance):
                return Search(called, tolerance, suspect, self.swapped(suspect, expected))
        return Search(called, tolerance)

    def delegates(self) -> Iterator[Trial]:
        """Make a trial of every delegate of the plan, in the order in which they run."""
        partitions = [partition for partition in self.plan.partitions if partition.outputs]
        return self.trials(partitions, self._emit_delegate)

    def trials(self, partitions: Sequence[Partition], emit: Emit) -> Iterator[Trial]:
        ends = [(*partition.inputs, *partition.outputs) for partition in partitions]
        values = self._eager({tensor.name for tensors in ends for tensor in tensors})
        pieces = Split(self.program, partitions)
        for partition, program in zip(partitions, pieces.programs, strict=True):
            inputs = [values[tensor.name] for tensor in partition.inputs]
            expected = [values[tensor.name] for tensor in partition.outputs]
            if (emitted := emit(partition, program, inputs)) is not None:
                yield Trial(partition, emitted, inputs, expected)

    def swapped(self, suspect: Suspect, expected: Sequence[Any]) -> list[Difference] | None:
        """Compare the outputs with one delegate on portable kernels; None if none run its ops."""
        try:
            return compare(self._without(suspect.partition), expected)
        except LoweringError:
            return None

    def emit(self, program: ExportedProgram) -> bytes:
        """Emit a program as it is, apart from the quirks of emission."""
        quirks = self.decision.quirks
        program = quirks.apply(Stage.PLANNED, program, FORWARD)
        manager = EdgeProgramManager({FORWARD: program}, None, UNVERIFIED)
        config = ExecutorchBackendConfig()
        config.sym_shape_eval_pass = EmissionPass(quirks, config.sym_shape_eval_pass, FORWARD)
        return bytes(guarded("to_executorch", lambda: manager.to_executorch(config)).buffer)

    def _without(self, partition: Partition) -> list[Any]:
        expander = self.decision.expander
        whole = expander.decomposable(self.program, partition.nodes)
        program = expander.expand(self.program, whole).program
        others = [other for other in self.plan.partitions if other.name != partition.name]
        pieces = Split(program, others)
        joined = pieces.join(list(map(self._delegate, others, pieces.programs)))
        return execute(self.emit(joined), self.inputs)

    def _emit_delegate(
        self, partition: Partition, program: ExportedProgram, inputs: Sequence[Any]
    ) -> bytes:
        with torch.no_grad():
            caller = _Caller(self._delegate(partition, program))
            exported = torch.export.export(caller, tuple(inputs))
            return self.emit(to_edge(exported, compile_config=UNVERIFIED).exported_program())

    def _delegate(self, partition: Partition, program: ExportedProgram) -> LoweredBackendModule:
        """Return the delegate of the .pte that a partition was compiled to."""
        compiled = self.compiled[partition.name]
        return LoweredBackendModule(
            edge_program=program,
            backend_id=compiled.backend_id,
            processed_bytes=compiled.payload,
            compile_specs=[CompileSpec(spec.key, spec.value) for spec in compiled.compile_specs],
            named_data_store_output=compiled.named_data,
        )

    def _eager(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Run the method in PyTorch and return the values of some nodes."""
        held = {**self.program.constants, **self.program.state_dict, **self.state}
        inputs = iter(self.inputs)
        specs = self.program.graph_signature.input_specs
        values = [held[s.target] if s.target in held else next(inputs) for s in specs]
        recorder = _Recorder(self.program.graph_module, frozenset(names))
        with torch.no_grad():
            recorder.run(*values)
        return recorder.values


def bisection(
    path: Path,
    decision: Decision,
    method: str,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
) -> Bisection:
    """Make the delegates of a .pte callable, with the decision of the same model and options."""
    artifact = read(path)
    problems = differences(decision.plan, artifact.methods)
    if problems:
        what = f"is not what this model and these plugins give: {problems[0]}"
        raise RunError(str(path), what, "give the --plugin, --device, --pin it was lowered with")
    if ptd.outside(artifact):
        raise RunError(str(path), "keeps data in a .ptd", "lower it without external data")
    plan = decision.plan[method]
    delegates = dict(zip(plan.delegates, compiled(path)[method], strict=True))
    return Bisection(decision, plan, delegates, inputs, state or {})


class _Caller(nn.Module):
    """A module that calls one delegate."""

    def __init__(self, delegate: LoweredBackendModule) -> None:
        super().__init__()
        self.delegate = delegate

    def forward(self, *inputs: Any) -> Any:
        return self.delegate(*inputs)


class _Recorder(Interpreter):
    """An interpreter of a graph that records the values of some nodes."""

    def __init__(self, module: torch.fx.GraphModule, wanted: frozenset[str]) -> None:
        super().__init__(module)
        self.wanted = wanted
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node.name in self.wanted:
            # A parameter that enters a delegate as an input is a plain tensor to the runtime.
            self.values[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        return value
