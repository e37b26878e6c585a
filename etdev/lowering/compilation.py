"""Compilation of a decision; where a backend fails, the decision is made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing, nullcontext
from typing import Any

from attrs import define, evolve, field
from attrs.validators import ge, in_, instance_of, optional

from etdev.delegate.cache.cache import Cache, Memory
from etdev.delegate.compile import Compiler
from etdev.delegate.compiler_calls import Done
from etdev.delegate.executors.dispatch import Dispatcher
from etdev.delegate.executors.processes import start_processes
from etdev.delegate.executors.request import WorkerError
from etdev.delegate.split import Weights
from etdev.errors import CompileError, EtdevError, first_line
from etdev.lowering.composition import Composition
from etdev.lowering.lowered import Lowered
from etdev.lowering.storage import growths
from etdev.planner.partitioning import Verdicts
from etdev.registry.registry import FALLBACK, ON_FAILURE
from etdev.runtime.decision import Decision
from etdev.schema.converters import refusing
from etdev.schema.ledger import Verdict
from etdev.schema.partition import Partition
from etdev.schema.plan import Plan
from etdev.schema.reasons import COMPILE_FAILED
from etdev.schema.stages import EMIT, OwnProgram
from etdev.schema.stopwatch import Step, Stopwatch
from etdev.upstream.tracing import without_full_collections


@refusing(EtdevError, "Lowerer")
@define(eq=False)
class Compilation:
    """The compilation of decisions.

    Args:
        composition: The plugins and the rules.
        cache: Where compiled partitions are kept.
        executor: Compiles; None for this process or processes of its own.
        jobs: How many processes compile; this one among them.
        on_failure: `error` or `fallback`.
    """

    composition: Composition
    cache: Cache
    executor: Executor | None = field(default=None, validator=optional(instance_of(Executor)))
    jobs: int = field(default=1, validator=[instance_of(int), ge(1)])
    on_failure: str = field(default="error", validator=in_(ON_FAILURE))

    def lower(self, decide: Callable[[], Decision]) -> Lowered:
        """Compile the decision that `decide` makes; the workers begin meanwhile."""
        self.fit()
        memory = Memory(self.cache)
        dispatcher = self._dispatcher(memory)
        with closing(dispatcher) if dispatcher else nullcontext():
            decision = decide()
            progress = CompileProgress(decision.stages, decision.plan)
            compiler = Compiler(
                self.composition.plugins, memory, progress, dispatcher, self._tolerant
            )
            barred: dict[str, Verdicts] = {}
            while True:
                self.composition.check_here(decision.plan)
                build = self._compiled(decision, compiler, progress)
                if not compiler.failures:
                    break
                decision = self._again(decision, compiler.failures, barred)
        plan, rules, plugins = decision.plan, self.composition.rules, self.composition.plugins
        known = growths(plan.methods, decision.programs, compiler.modules)
        decision = evolve(decision, plan=evolve(plan, growths=tuple(known)))
        weights, outcomes = Weights(decision.programs), tuple(compiler.outcomes)
        return Lowered(decision, rules.strict, rules.budget, outcomes, weights, plugins, build)

    def fit(self) -> Composition:
        """Leave out the plugins that can't compile here, once; refuse one that the user named."""
        if not self.composition.probed:
            self.composition = self.composition.fit(self._tolerant)
        return self.composition

    @property
    def _tolerant(self) -> bool:
        return self.on_failure == FALLBACK

    def _dispatcher(self, memory: Memory) -> Dispatcher | None:
        if self.executor is not None:
            return Dispatcher(self.executor, memory=memory)
        if self.jobs == 1:
            return None
        return Dispatcher(start_processes(self.jobs - 1), self.jobs - 1, memory)

    @without_full_collections()
    def _compiled(
        self, decision: Decision, compiler: Compiler, progress: CompileProgress
    ) -> Callable[[], Any]:
        """Compile everything; return a function that builds the methods, afresh at every call."""
        progress.plan, progress.done = decision.plan, 0
        with decision.stages.stage("compile"):
            splits = {
                name: self.composition.split(program, decision.plan[name])
                for name, program in decision.programs.items()
            }
            lowered = compiler.compile(splits)

        @without_full_collections()
        def build() -> Any:
            joined = {name: taken.join(lowered[name]) for name, taken in splits.items()}
            apply = decision.quirks.apply
            planned = {n: apply(EMIT, OwnProgram(p), n) for n, p in joined.items()}
            return decision.rebuilt(planned)

        return build

    def _again(
        self, decision: Decision, failures: Sequence[Done], barred: dict[str, Verdicts]
    ) -> Decision:
        """Plan again; a plugin can't have the nodes that its backend failed on."""
        faults = bar(failures, barred)
        with decision.stages.stage("plan"):
            try:
                given = decision.converted, decision.whole, decision.expander, barred
                plan, decided = self.composition.plan(*given, decision.plan.state)
            except EtdevError as error:
                # Such as a budget for portable kernels: the reason is what could not be compiled.
                raise error from faults[0]
        return evolve(decision, plan=plan, programs=decided)


def bar(failures: Sequence[Done], barred: dict[str, Verdicts]) -> list[CompileError]:
    """Bar plugins from the nodes that their backends failed on, and return the errors."""
    faults = [fault for done in failures for fault in done.faults()]
    for partition, error in faults:
        cause = error.__cause__
        line = cause.line if isinstance(cause, WorkerError) else first_line(cause or error)
        verdict = Verdict(partition.plugin, COMPILE_FAILED.code, COMPILE_FAILED.say(error=line))
        for node in partition.nodes:
            barred.setdefault(partition.method, {}).setdefault(node, {})[partition.plugin] = verdict
    return [error for _, error in faults]


@define(eq=False)
class CompileProgress:
    """The progress of compilation, for a listener."""

    stages: Stopwatch
    plan: Plan
    done: int = 0

    def __call__(self, partition: Partition, state: str, seconds: float) -> None:
        if state == "compiling" or state == "hit":
            total = len(self.plan.partitions)
            self.stages.say("compile", f"{self.done + 1}/{total} {partition.where}")
        self.done += state not in ("waiting", "compiling")
        nodes = self.plan[partition.method].ledger.sizes[partition.name]
        self.stages.step(Step(partition.plugin, partition.where, nodes, state, seconds))
