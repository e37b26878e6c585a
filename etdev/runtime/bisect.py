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
from etdev.pte import ptd, read
from etdev.pte.audit import differences
from etdev.pte.emit import load_quantised_kernels
from etdev.pte.read import Compiled
from etdev.runtime.run import Difference, compare, execute, flat
from etdev.schema.plan import MethodPlan, Partition
from etdev.stages import guarded

# The programs hold delegate calls, which the edge verifier doesn't know.
_UNVERIFIED = EdgeCompileConfig(_check_ir_validity=False)


@frozen
class Suspect:
    """One delegate, called with what eager PyTorch computes for its inputs.

    Args:
        partition: What it was planned as.
        modules: Paths of the source modules that its nodes come from, in graph order.
        output: Name of the node whose value departs most.
        difference: How far that value is from eager's.
    """

    partition: Partition
    modules: tuple[str, ...]
    output: str
    difference: Difference

    def departs(self, tolerance: float) -> bool:
        """Whether it is further from eager than an absolute error; a nan always is."""
        return not self.difference.max_error <= tolerance


@define(eq=False)
class Bisection:
    """A method of a .pte, its delegates to be called one by one.

    Args:
        plan: The method's plan.
        program: Its program, as it was decided: what the plan's nodes are in.
        compiled: The .pte's own delegates, in the order in which they run.
        inputs: The method's inputs, flat.
        expander: Decomposes ops that no portable kernel runs.
    """

    plan: MethodPlan
    program: ExportedProgram
    compiled: Mapping[str, Compiled]
    inputs: Sequence[Any]
    expander: Expander

    def suspects(self) -> Iterable[Suspect]:
        """Every delegate of the plan in the order in which they run, called by itself."""
        values = self._eager()
        taken = split(self.program, self.plan.partitions)
        nodes = {node.name: node for node in self.program.graph.nodes}
        for partition, program in zip(taken.partitions, taken.programs, strict=True):
            if not partition.outputs:
                continue
            delegate = self._delegate(partition, program)
            given = [values[tensor.name] for tensor in partition.inputs]
            expected = [values[tensor.name] for tensor in partition.outputs]
            differences = compare(_alone(delegate, given), expected)
            worst = max(range(len(differences)), key=lambda i: _badness(differences[i]))
            yield Suspect(
                partition,
                tuple(dict.fromkeys(_modules(nodes[name] for name in partition.nodes))),
                partition.outputs[worst].name,
                differences[worst],
            )

    def swapped(self, suspect: Suspect, expected: Sequence[Any]) -> list[Difference] | None:
        """How far the whole method is from eager with one partition on portable kernels instead.

        Args:
            suspect: The partition.
            expected: Outputs of eager PyTorch, flat.

        Returns:
            A difference per output; None if there are no portable kernels for it.
        """
        try:
            return compare(self._without(suspect.partition), expected)
        except LoweringError:
            return None

    def _without(self, partition: Partition) -> list[Any]:
        whole = self.expander.decomposable(self.program, partition.nodes)
        program = self.expander.expand(self.program, whole).program
        others = [part for part in self.plan.partitions if part.name != partition.name]
        taken = split(program, others)
        lowered = [
            self._delegate(part, inner) for part, inner in zip(others, taken.programs, strict=True)
        ]
        return _run(
            EdgeProgramManager({"forward": taken.join(lowered)}, None, _UNVERIFIED), self.inputs
        )

    def _eager(self) -> dict[str, Any]:
        """The value of every node that enters or leaves a partition, as PyTorch computes it."""
        wanted = {
            tensor.name for part in self.plan.partitions for tensor in (*part.inputs, *part.outputs)
        }
        recorder = _Recorder(self.program, wanted)
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
    """The delegates of a .pte, to be called one by one.

    Args:
        path: The .pte.
        decision: What it was lowered by: the same model, plugins, devices and pins.
        method: The method to look at.
        inputs: Its inputs, flat.

    Raises:
        RunError: The .pte is another one, or keeps its data outside.
        ArtifactError: It can't be read.
    """
    facts = read.read(path)
    other = differences(decision.plan, facts.methods)
    if other:
        what = f"is not what this model and these plugins give: {other[0]}"
        raise RunError(str(path), what, "give the --plugin, --device, --pin it was lowered with")
    if ptd.outside(facts):
        raise RunError(str(path), "keeps data in a .ptd", "lower it without external data")
    plan = decision.plan[method]
    compiled = dict(zip(plan.delegates, read.compiled(path, method), strict=True))
    return Bisection(plan, decision.programs[method], compiled, inputs, decision.expander)


class _Recorder(Interpreter):
    """Runs a program in PyTorch and keeps some of its values."""

    def __init__(self, program: ExportedProgram, wanted: set[str]) -> None:
        super().__init__(program.graph_module)
        self.wanted = wanted
        self.values: dict[str, Any] = {}

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node.name in self.wanted:
            # A parameter that enters a delegate from outside is only a tensor to the runtime.
            self.values[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        return value


class _Alone(nn.Module):
    """A program of one delegate."""

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
    """What the graph takes, constants included, in its order."""
    constants = {**program.constants, **program.state_dict}
    given = iter(flat(inputs))
    return [
        constants[spec.target] if spec.target in constants else next(given)
        for spec in program.graph_signature.input_specs
    ]


def _modules(nodes: Iterable[Node]) -> Iterable[str]:
    for node in nodes:
        yield from module_paths(node)[-1:]


def _badness(difference: Difference) -> float:
    """Larger is worse, and nan is the worst."""
    error = difference.max_error
    return float("inf") if error != error else error
