"""The subject of the checks: a plugin, its requirements, and ways to plan and run with it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import define, field, fields, frozen
from executorch.exir.lowered_backend_module import LoweredBackendModule, get_lowered_submodules
from executorch.runtime import Runtime
from torch.export import ExportedProgram

from etdev.files import scratch
from etdev.lowered import Lowered
from etdev.lowerer import Lowerer
from etdev.pte.read import read
from etdev.registry import Registry, answers
from etdev.registry.plugin import Plugin
from etdev.registry.selection import from_object
from etdev.runtime.run import run_series
from etdev.schema.plan import MethodPlan
from etdev.testing import global_settings, programs
from etdev.testing.fakes import FAKE
from etdev.testing.programs import Calls
from etdev.testing.simulation import Simulation, Simulator
from etdev.upstream.trees import flat
from etdev.verify.tolerance import Tolerance

# Returns the outputs of each call; state is carried from call to call.
Run = Callable[[Calls], Sequence[Sequence[Any]]]
# A tiny program that takes longer hangs.
_LIMIT_S = 120.0


class Skipped(Exception):
    """A check that does not apply; the text is the reason."""


@frozen
class Requirements:
    """Requirements that a plugin has to meet; its report lists those below the defaults.

    Args:
        reasons: It gives a reason for every node that it doesn't claim.
        compiles: Its backend's compiler works on this machine.
        quick_probe: Its probe answers within a second.
        same_bytes: Its compiler gives the same bytes for the same partition.
        other_process: It can be sent to another process and plans there with another hash seed.
        tolerance: Largest error relative to the largest value of an output.
        dtypes: Dtypes of the inputs that values are compared for.
        special: NaN and infinities give the values of PyTorch.
    """

    reasons: bool = True
    compiles: bool = True
    quick_probe: bool = True
    same_bytes: bool = True
    other_process: bool = True
    tolerance: float = 1e-5
    dtypes: tuple[str, ...] = ("float32", "float16", "int32", "int64")
    special: bool = True

    @property
    def opt_outs(self) -> tuple[str, ...]:
        """The requirements below their defaults, such as `tolerance = 0.01`."""
        usual = Requirements()
        values = {field.name: getattr(self, field.name) for field in fields(Requirements)}
        if set(usual.dtypes) <= set(self.dtypes):
            del values["dtypes"]
        return tuple(f"{n} = {v}" for n, v in values.items() if v != getattr(usual, n))


@define(eq=False)
class Subject:
    """The plugin under test, and what the current check of it has seen.

    Args:
        make: Makes it, a new one each time.
        looked: The check has seen the plugin do what the check is about; else it is skipped.
        gaps: What the check could not look at; it is skipped for any of them.
        notes: How the check looked, for the report.
        settings: Settings of the process, which each lowering starts from.
    """

    make: Callable[[], object]
    requirements: Requirements = field(factory=Requirements)
    simulators: Mapping[str, Simulator] = field(factory=dict)
    models: Sequence[tuple[torch.nn.Module, Calls]] = ()
    looked: bool = False
    gaps: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    settings: list[Any] = field(factory=global_settings.read)

    def lowerer(
        self, *others: object, first: Sequence[object] = (), on_failure: str | None = None
    ) -> Lowerer:
        """Make a lowerer with the plugin between other ones, and without a cache."""
        global_settings.put_back(self.settings)
        plugins = [*first, self.make(), *others]
        return Lowerer(plugins, registry=Registry(), cache=False, on_failure=on_failure)

    def reseed(self, seed: int) -> None:
        """Change all random states; the host puts them back, so that each lowering has the same."""
        global_settings.put_back(self.settings)
        for each in (random.seed, np.random.seed, torch.manual_seed):
            each(seed)

    @property
    def plugin(self) -> Plugin:
        """The plugin as the host asks it."""
        return from_object(self.make())

    @property
    def name(self) -> str:
        """The plugin's name, also of one that the host refuses."""
        made: object = self.make
        with suppress(Exception):
            made = self.make()
            return from_object(made).name
        return str(getattr(made, "name", None) or getattr(made, "__name__", type(made).__name__))

    def unfit(self) -> str:
        """Return why the plugin can't compile here; empty if it can."""
        if not self.requirements.compiles:
            return "requirements.compiles is off"
        reason = answers.probe(self.plugin).unfit
        return f"it can't compile here: {reason}" if reason else ""

    def compiling(self) -> None:
        """Skip the check if the plugin can't compile here."""
        if reason := self.unfit():
            raise Skipped(reason)

    def programs(self, *kinds: Any) -> Iterator[ExportedProgram]:
        """Yield the programs of tiny modules, then those of the author's models."""
        yield from map(programs.exported, kinds)
        for model, calls in self.models:
            yield programs.exported_own(model, calls)

    def claimed(self, *kinds: Any) -> Iterator[tuple[ExportedProgram, MethodPlan]]:
        """Yield those of these programs that the plugin claims nodes of, and their plans."""
        for program in self.programs(*kinds):
            plan = self.lowerer().plan(program)["forward"]
            if self.owned(plan):
                yield program, plan

    def lower(self, lowerer: Lowerer, program: ExportedProgram) -> None:
        """Lower a program; where the plugin can't compile, plan it, which leaves a gap."""
        reason = self.unfit()
        plan = lowerer.plan(program) if reason else lowerer.lower(program).plan
        if self.owned(plan["forward"]):
            self.looked = True
            self.gaps += [f"planned, but not compiled: {reason}"] if reason else []

    def compare(
        self,
        lowerer: Lowerer,
        program: ExportedProgram,
        model: torch.nn.Module,
        calls: Calls,
        tolerance: float = 0.0,
    ) -> bool:
        """Lower a program and compare its calls with those of a model, if the plugin claims nodes.

        A program that can't run here is compiled all the same, since the compiler may fail, and
        leaves a gap. Return True if values were compared.
        """
        plan = lowerer.plan(program) if self.unfit() else (lowered := lowerer.lower(program)).plan
        if not self.owned(plan["forward"]):
            return False
        self.compiling()
        loosest = max(self.requirements.tolerance, tolerance)
        run, simulated = runner(lowered, self.simulators)
        if run is None:
            why = f"this runtime does not have {simulated}, and no simulator is given"
            self.gaps.append(f"compiled, but not run: {why}")
            return False
        note = f"in the simulator of {simulated}, not in ExecuTorch's runtime"
        if simulated and note not in self.notes:
            self.notes.append(note)
        mine, compared = copy.deepcopy(model).eval(), False
        for step, (inputs, outputs) in enumerate(zip(calls, run(calls), strict=True), 1):
            with torch.no_grad():
                expected = flat(mine(*copy.deepcopy(inputs)))
            problem = Tolerance(loosest).mismatch(outputs, expected)
            assert not problem, f"step {step}: {problem}"
            compared = compared or any(torch.as_tensor(value).numel() for value in expected)
        return compared

    def owned(self, plan: MethodPlan) -> set[str]:
        """Names of the nodes that the plugin has in a plan."""
        return {entry.node for entry in plan.ledger if entry.owner == self.name}


def delegates(lowered: Lowered) -> list[LoweredBackendModule]:
    """Return the delegates of a method."""
    module = lowered.edge.exported_program().graph_module
    return [delegate for _, delegate, _ in get_lowered_submodules(module)]


def runner(lowered: Lowered, simulators: Mapping[str, Simulator]) -> tuple[Run | None, str]:
    """Return a function that runs a lowered program, and the backends that it simulates.

    None and the names of the backends, if any can't be run.
    """
    backends = {partition.backend_id for partition in lowered.plan.partitions}
    known = Runtime.get().backend_registry
    absent = sorted(backend for backend in backends if not known.is_available(backend))
    if not absent:
        return lambda calls: _in_the_runtime(lowered, calls), ""
    if unknown := sorted({*absent} - simulators.keys() - {FAKE}):
        return None, ", ".join(unknown)
    simulation = Simulation.of(lowered, simulators)
    simulated = [backend for backend in absent if backend != FAKE]
    return lambda calls: [simulation(*inputs) for inputs in calls], ", ".join(simulated)


def _in_the_runtime(lowered: Lowered, calls: Calls) -> Sequence[Sequence[Any]]:
    """Run a program in a child process, since a wrong delegate may crash it."""
    with scratch() as folder:
        path = lowered.save(Path(folder) / "net.pte")
        data = next(Path(folder).glob("*.ptd"), None)
        facts = read(path).method("forward")
        outcome = run_series(path, [(facts, inputs) for inputs in calls], data, _LIMIT_S)
    assert outcome.failure is None, f"step {len(outcome.values) + 1}: {outcome.failure}"
    return [call.outputs for call in outcome.values]
