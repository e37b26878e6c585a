"""The compilation of partitions, and the nodes that a failed backend costs its plugin."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from attrs import define, field
from attrs.validators import ge, in_, instance_of, optional

from etdev.delegate.cache.cache import Cache, Memory
from etdev.delegate.compiler_calls import Done
from etdev.delegate.executors.dispatch import Dispatcher
from etdev.delegate.executors.request import WorkerError
from etdev.errors import CompileError, EtdevError, first_line
from etdev.lowering.composition import Composition
from etdev.lowering.lowering import Lowering
from etdev.planner.partitioning import Verdicts
from etdev.registry.registry import FALLBACK, ON_FAILURE
from etdev.runtime import libraries
from etdev.schema.converters import refusing
from etdev.schema.ledger import Verdict
from etdev.schema.partition import Partition
from etdev.schema.reasons import COMPILE_FAILED
from etdev.schema.stages import COMPILE
from etdev.schema.stopwatch import PartitionProgress


@refusing(EtdevError, "Lowerer")
@define(eq=False)
class Compilation:
    """The settings by which partitions are compiled.

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

    def fit(self) -> Composition:
        """Leave out the plugins that can't compile here, once; refuse one that the user named.

        A budget of libraries is refused here, too, if none can count them.
        """
        if self.composition.rules.budget and self.composition.rules.budget.runtime_bytes:
            libraries.counter()
        if not self.composition.probed:
            self.composition = self.composition.fit(self.is_tolerant)
        return self.composition

    @property
    def is_tolerant(self) -> bool:
        """True if another plugin may take what a compiler failed on."""
        return self.on_failure == FALLBACK

    def workers(self) -> tuple[Memory, Dispatcher | None]:
        """Start what compiles for one lowering; without workers, this process does."""
        memory = Memory(self.cache)
        if self.executor is None and self.jobs == 1:
            return memory, None
        own = self.jobs - 1 if self.executor is None else 0
        return memory, Dispatcher(self.executor, own, memory)


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
    """The progress of compilation, for the listener of a lowering."""

    work: Lowering
    done: int = 0

    def __call__(self, partition: Partition, state: str, seconds: float) -> None:
        plan, stages = self.work.plan, self.work.stages
        if state == "compiling" or state == "hit":
            total = len(plan.partitions)
            stages.say(COMPILE.name, f"{self.done + 1}/{total} {partition.where}")
        self.done += state not in ("waiting", "compiling")
        nodes = plan[partition.method].ledger.sizes[partition.name]
        stages.step(PartitionProgress(partition.plugin, partition.where, nodes, state, seconds))
