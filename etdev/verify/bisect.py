"""Bisection: delegates and portable kernels of a .pte run alone, and are compared with eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve, field
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from etdev.delegate.split import Split
from etdev.edge.source import FORWARD
from etdev.errors import RunError
from etdev.graph.join import Join
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import op_name, where
from etdev.graph.signature import stored_values
from etdev.lowering.lowering import Lowering
from etdev.pte import ptd
from etdev.pte.audit import differences
from etdev.pte.emit import EmissionPass
from etdev.pte.read import Compiled, compiled, methods_in, read
from etdev.registry.masked import partitions_of
from etdev.runtime.child import ChildResult
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON, Runner
from etdev.schema.partition import Partition
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan
from etdev.schema.stages import EMIT, OwnProgram
from etdev.schema.tensors import STARTED
from etdev.upstream.emission import NamedDataStore
from etdev.verify.oracle import EagerCall
from etdev.verify.tolerance import Tolerance, steps_of


@define(eq=False, slots=False)
class Bisection:
    """A method of a .pte whose delegates and kernels can be called one by one.

    Args:
        compiled: The .pte's delegates by partition name.
        calls: Consecutive calls of the method, each with the values of its buffers before it.
        runner: Calls them.
        skipped: The delegates and kernels that could not be called alone.
    """

    decision: Lowering
    plan: MethodPlan
    compiled: Mapping[str, Compiled]
    calls: Sequence[EagerCall]
    runner: Runner = PYTHON
    skipped: list[str] = field(factory=list, init=False)

    @property
    def program(self) -> ExportedProgram:
        """The method's edge-dialect program, with exactly the plan's nodes."""
        return self.decision.programs[self.plan.method]

    def culprit(self, tolerance: Tolerance, failed: bool = False) -> str | None:
        """Name the first delegate, else the first portable kernel, that is wrong by itself.

        Each is called in one series, with eager PyTorch's values for its inputs, so that none is
        blamed for an earlier one. One that fails is blamed only if the method `failed`, too, in its
        last call: else it can't be called alone. Rounding of values that cancel is blamed last.
        """
        parts = [*self.delegates, *self.kernels]
        ran = list[tuple[Partition, ChildResult]]()
        for partition, program in zip(parts, Split(self.program, parts).programs, strict=True):
            try:
                outcome = self._run_alone(partition, program)
            # Such as an op that returns its input, or a size that no input has.
            except Exception:
                self.skipped.append(self._name(partition))
                continue
            ran.append((partition, outcome))
            problem = self._departure(partition, outcome, tolerance, tolerance.rounding)
            if not problem and failed and len(outcome.values) == len(self.calls) - 1:
                problem = outcome.failure
            if problem:
                return f"{self._name(partition)}: {problem}"
            if outcome.failure:
                self.skipped.append(self._name(partition))
        found = ((part, self._departure(part, outcome, tolerance, 0.0)) for part, outcome in ran)
        return next((f"{self._name(part)}: {problem}" for part, problem in found if problem), None)

    def _run_alone(self, partition: Partition, program: ExportedProgram) -> ChildResult:
        """Call a partition as a .pte of its own."""
        if partition.plugin != PORTABLE:
            program = Join(program, [partition], [self._delegate(partition, program)]).build()
        emitted = self._emit(_with_sizes(program))
        # Methods that return constants come with it.
        method = next(method for method in methods_in(emitted) if method.name == FORWARD)
        series = []
        for values in self.values:
            inputs = [values[tensor.name] for tensor in partition.inputs]
            # ExecuTorch emits a symbolic size that is an input as None.
            kinds = [value.kind for value in method.inputs]
            given = [None if k == "Null" else v for k, v in zip(kinds, inputs, strict=True)]
            series.append((method, given))
        return run_series(emitted, series, runner=self.runner)

    def _departure(
        self, partition: Partition, outcome: ChildResult, tolerance: Tolerance, rounding: float
    ) -> str | None:
        names = [tensor.name for tensor in partition.outputs]
        slack = [max(step, rounding) for step in steps_of(self.program, names)]
        for ran, values in zip(outcome.values, self.values, strict=False):
            expected = [values[name] for name in names]
            if problem := evolve(tolerance, slack=slack).mismatch(ran.outputs, expected):
                return problem
        return None

    @property
    def delegates(self) -> list[Partition]:
        """The partitions whose results are used."""
        return [partition for partition in self.plan.partitions if partition.outputs]

    @cached_property
    def kernels(self) -> list[Partition]:
        """A partition for each op that no delegate owns."""
        graph, members = MethodGraph(self.program, self.plan.method), dict[str, str]()
        owned = {name for partition in self.plan.partitions for name in partition.nodes}
        for name in graph.ops:
            node = graph.node(name)
            is_number = isinstance(node.meta.get("val"), torch.SymInt)
            if name not in owned and node.users and not is_number:
                tied = graph.with_followers([graph.number[name]])
                members.update({graph.nodes[number].name: name for number in tied})
        return list(partitions_of(graph, members, PORTABLE))

    def _emit(self, program: ExportedProgram) -> bytes:
        """Emit a program as it is, apart from the quirks of emission."""
        fixer = self.decision.fixer
        program = fixer.apply(EMIT, OwnProgram(program), FORWARD)
        manager = self.decision.manager({FORWARD: program})
        config = ExecutorchBackendConfig()
        config.sym_shape_eval_pass = EmissionPass(fixer, config.sym_shape_eval_pass, FORWARD)
        return bytes(manager.to_executorch(config).buffer)

    def _delegate(self, partition: Partition, program: ExportedProgram) -> LoweredBackendModule:
        """Return the delegate of the .pte that a partition was compiled to."""
        compiled, store = self.compiled[partition.name], NamedDataStore()
        for key, data in compiled.named_data.items():
            store.add_named_data(key, data)
        return LoweredBackendModule(
            edge_program=program,
            backend_id=compiled.backend_id,
            processed_bytes=compiled.payload,
            compile_specs=[CompileSpec(spec.key, spec.value) for spec in compiled.compile_specs],
            named_data_store_output=store.get_named_data_store_output(),
        )

    @cached_property
    def values(self) -> Sequence[Mapping[str, Any]]:
        """The inputs and outputs of all delegates and kernels in PyTorch, in each call."""
        specs = self.program.graph_signature.input_specs
        parts = [*self.delegates, *self.kernels]
        names = {tensor.name for part in parts for tensor in (*part.inputs, *part.outputs)}
        recorded = []
        for call in self.calls:
            started = {f"{name}{STARTED}": torch.tensor(True) for name in call.state}
            weights = stored_values(self.program)
            held = {**weights, **call.state, **started}
            inputs = iter(call.inputs)
            arguments = [held[s.target] if s.target in held else next(inputs) for s in specs]
            interpreter = Interpreter(self.program.graph_module, garbage_collect_values=False)
            with torch.no_grad():
                interpreter.run(*arguments)
            values = {node.name: value for node, value in interpreter.env.items()}
            recorded.append({name: values[name] for name in names})
        return recorded

    def _name(self, partition: Partition) -> str:
        if partition.plugin != PORTABLE:
            return f"delegate {partition.name} ({partition.plugin}, {partition.backend_id})"
        node = next(n for n in self.program.graph.nodes if n.name == partition.name)
        return f"kernel of {op_name(node)} ({node.name}{where(node)})"


def bisection(
    path: Path, decision: Lowering, method: str, calls: Sequence[EagerCall], runner: Runner = PYTHON
) -> Bisection:
    """Make the delegates of a .pte callable, with the decision of the same model and options."""
    artifact = read(path)
    problems = differences(decision.plan, artifact.methods)
    if problems:
        what = f"does not match this model and these plugins: {problems[0]}"
        raise RunError(str(path), what, "give the --plugin, --device, --pin it was lowered with")
    if ptd.outside(artifact):
        raise RunError(str(path), "keeps data in a .ptd", "lower it without external data")
    plan = decision.plan[method]
    delegates = dict(zip(plan.delegates, compiled(path)[method], strict=True))
    return Bisection(decision, plan, delegates, calls, runner)


def _with_sizes(program: ExportedProgram) -> ExportedProgram:
    """Take symbolic sizes that are inputs of one op from its tensors; ExecuTorch emits None.

    Raises:
        KeyError: No tensor has that size.
    """
    graph, sizes = program.graph, dict[str, tuple[Node, int]]()
    inputs = graph.find_nodes(op="placeholder")
    for node in inputs:
        for dim, size in enumerate(getattr(node.meta["val"], "shape", ())):
            sizes.setdefault(str(size), (node, dim))
    for node in inputs:
        if isinstance(value := node.meta["val"], torch.SymInt):
            with graph.inserting_after(inputs[-1]):
                size = graph.call_function(torch.ops.aten.sym_size.int, sizes[str(value)])
            size.meta = dict(node.meta)
            node.replace_all_uses_with(size)
    return program
