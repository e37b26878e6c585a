"""The compilation of partitions, and the nodes that a failed backend costs its plugin."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from etdev.delegate.cache.cache import Cache, Memory
from etdev.delegate.executors.dispatch import Dispatcher
from etdev.delegate.executors.request import WorkerError
from etdev.errors import CompileError, first_line
from etdev.lowering.composition import Composition
from etdev.lowering.lowering import Lowering
from etdev.planner.partitioning import Verdicts
from etdev.runtime import libraries
from etdev.schema.ledger import Verdict
from etdev.schema.partition import Partition
from etdev.schema.reasons import COMPILE_FAILED
from etdev.schema.stages import COMPILE
from etdev.schema.stopwatch import PartitionProgress


@define(eq=False)
class Compilation:
    """The means by which partitions of lowerings are compiled, one lowering after the other.

    Args:
        composition: The plugins and the settings.
        cache: Where compiled partitions are kept.
    """

    composition: Composition
    cache: Cache = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cache = Cache(self.composition.options.cache)

    def fit(self) -> Composition:
        """Leave out the plugins that can't compile here, once; refuse one that the user named.

        A budget of libraries is refused here, too, if none can count them.
        """
        options = self.composition.options
        if options.budget and options.budget.runtime_bytes:
            libraries.counter()
        if not self.composition.probed:
            self.composition = self.composition.fit(options.falls_back)
        return self.composition

    def workers(self) -> tuple[Memory, Dispatcher | None]:
        """Start what compiles for one lowering; without workers, this process does."""
        memory, options = Memory(self.cache), self.composition.options
        if options.executor is None and options.jobs == 1:
            return memory, None
        own = options.jobs - 1 if options.executor is None else 0
        return memory, Dispatcher(options.executor, own, memory)


def bar(failures: Sequence[tuple[Partition, CompileError]], barred: dict[str, Verdicts]) -> None:
    """Bar plugins from the nodes that their backends failed on."""
    for partition, error in failures:
        cause = error.__cause__
        line = cause.line if isinstance(cause, WorkerError) else first_line(cause or error)
        verdict = Verdict(partition.plugin, COMPILE_FAILED.code, COMPILE_FAILED.say(error=line))
        for node in partition.nodes:
            barred.setdefault(partition.method, {}).setdefault(node, {})[partition.plugin] = verdict


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
