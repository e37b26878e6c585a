"""Bisection: delegates and portable kernels of a .pte run one by one, and compared with eager."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
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
from etdev.errors import RunError
from etdev.graph.nodes import describe, op_name, where
from etdev.pte import ptd
from etdev.pte.audit import differences
from etdev.pte.emit import EmissionPass
from etdev.pte.read import Compiled, compiled, methods_in, read
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.decision import Decision
from etdev.runtime.run import run_method
from etdev.schema.partition import Partition
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan
from etdev.schema.quirk import Stage
from etdev.upstream.edge import unverified

# The programs hold delegate calls, which the edge verifier rejects.
UNVERIFIED = unverified(EdgeCompileConfig())


@define(eq=False, slots=False)
class Bisection:
    """A method of a .pte whose delegates and kernels can be called one by one.

    Args:
        compiled: The .pte's delegates by partition name.
        state: Values of its buffers before the call, by name; the program's for those left out.
    """

    decision: Decision
    plan: MethodPlan
    compiled: Mapping[str, Compiled]
    inputs: Sequence[Any]
    state: Mapping[str, Any] = field(factory=dict)
    skipped: list[str] = field(factory=list, init=False)

    @property
    def program(self) -> ExportedProgram:
        """The method's edge-dialect program, with exactly the plan's nodes."""
        return self.decision.programs[self.plan.method]

    def culprit(self, tolerance: Tolerance) -> str | None:
        """Name the first delegate, else the first portable kernel, that is wrong by itself.

        Each gets eager PyTorch's values for its inputs, so none is blamed for an earlier one.
        `skipped` gets those that can't be called alone.
        """
        delegates = [partition for partition in self.plan.partitions if partition.outputs]
        for partition, program in chain(self._split(delegates), self._split(self._kernels())):
            inputs, expected = (
                [self.values[tensor.name] for tensor in tensors]
                for tensors in (partition.inputs, partition.outputs)
            )
            if (emitted := self._emit_alone(partition, program, inputs)) is None:
                self.skipped.append(self._name(partition))
                continue
            (method,) = methods_in(emitted)
            # ExecuTorch emits a symbolic size that is an input as None.
            kinds = [value.kind for value in method.inputs]
            given = [None if k == "Null" else v for k, v in zip(kinds, inputs, strict=True)]
            outcome = run_method(emitted, method, [given])
            problem = outcome.failure
            if not problem:
                problem = mismatch(outcome.values[0].outputs, expected, tolerance)
            if problem:
                return f"{self._name(partition)}: {problem}"
        return None

    def _split(
        self, partitions: Sequence[Partition]
    ) -> Iterator[tuple[Partition, ExportedProgram]]:
        yield from zip(partitions, Split(self.program, partitions).programs, strict=True)

    def _kernels(self) -> list[Partition]:
        """Return a partition for each op that no delegate owns."""
        owned = {name for partition in self.plan.partitions for name in partition.nodes}
        return [
            _partition(self.plan.method, node)
            for node in self.program.graph.nodes
            if node.op == "call_function" and node.target is not operator.getitem
            if node.name not in owned and node.users
            if not isinstance(node.meta.get("val"), torch.SymInt)
        ]

    def _emit_alone(
        self, partition: Partition, program: ExportedProgram, inputs: Sequence[Any]
    ) -> bytes | None:
        """Emit a partition as a .pte of its own; None for an op that can't stand alone."""
        if partition.plugin == PORTABLE:
            try:
                return self._emit(_with_sizes(program))
            except Exception:
                # Such as an op that returns its input.
                return None
        with torch.no_grad():
            caller = _Caller(self._delegate(partition, program))
            exported = torch.export.export(caller, tuple(inputs))
            return self._emit(to_edge(exported, compile_config=UNVERIFIED).exported_program())

    def _emit(self, program: ExportedProgram) -> bytes:
        """Emit a program as it is, apart from the quirks of emission."""
        quirks = self.decision.quirks
        program = quirks.apply(Stage.PLANNED, program, FORWARD)
        manager = EdgeProgramManager({FORWARD: program}, None, UNVERIFIED)
        config = ExecutorchBackendConfig()
        config.sym_shape_eval_pass = EmissionPass(quirks, config.sym_shape_eval_pass, FORWARD)
        return bytes(manager.to_executorch(config).buffer)

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

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The value of every node in PyTorch."""
        held = {**self.program.constants, **self.program.state_dict, **self.state}
        inputs = iter(self.inputs)
        specs = self.program.graph_signature.input_specs
        recorder = _Recorder(self.program.graph_module)
        with torch.no_grad():
            recorder.run(*(held[s.target] if s.target in held else next(inputs) for s in specs))
        return recorder.values

    def _name(self, partition: Partition) -> str:
        if partition.plugin != PORTABLE:
            return f"delegate {partition.name} ({partition.plugin}, {partition.backend_id})"
        node = next(n for n in self.program.graph.nodes if n.name == partition.name)
        return f"kernel of {op_name(node)} ({node.name}{where(node)})"


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


def _partition(method: str, node: Node) -> Partition:
    """Make a partition of one op, with its getitems and branches."""
    items = [user for user in node.users if user.target is operator.getitem]
    branches = [source for source in node.all_input_nodes if source.op == "get_attr"]
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    several = isinstance(node.meta.get("val"), (tuple, list))
    return Partition(
        name=node.name,
        method=method,
        plugin=PORTABLE,
        backend_id="",
        nodes=tuple(n.name for n in (*branches, node, *(items if several else ()))),
        inputs=tuple(describe(source) for source in sources),
        outputs=tuple(describe(n) for n in (items if several else (node,))),
    )


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


class _Caller(nn.Module):
    """A module that calls one delegate."""

    def __init__(self, delegate: LoweredBackendModule) -> None:
        super().__init__()
        self.delegate = delegate

    def forward(self, *inputs: Any) -> Any:
        return self.delegate(*inputs)


class _Recorder(Interpreter):
    """An interpreter of a graph that records the value of every node."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        # A parameter that enters a delegate as an input is a plain tensor to the runtime.
        self.values[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        return value
