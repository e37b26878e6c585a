"""Compilation: what the cache doesn't have is compiled by ExecuTorch's backends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from attrs import define, evolve, field
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache.errors import Unhashable
from etdev.delegate.cache.key import Keys, about
from etdev.delegate.cache.results import Unstorable, packed, unpacked
from etdev.delegate.calls import Call, calls_of
from etdev.delegate.executors.crew import Crew
from etdev.delegate.jobs import Job, batches, jobs_of
from etdev.delegate.split import Split, settled_heap
from etdev.delegate.tasks import Done, Task
from etdev.errors import CacheError, CompileError
from etdev.graph.nodes import fingerprint
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.outcomes import Outcome
from etdev.schema.plan import Partition

# Told of a partition, what state it is in now, and what it took in seconds.
Tell = Callable[[Partition, str, float], None]


@define(eq=False)
class Compiler:
    """Compiles the partitions of a program; again, if some of them failed and were planned anew.

    Args:
        plugins: Asked for the context in which their partitions are compiled.
        cache: Asked first, and given what was compiled; None compiles everything.
        tell: Told of each partition that it is `waiting`, `compiling`, then what its outcome is, or
            `failed`.
        crew: Who compiles; None for this process, one call after the other.
        tolerant: Keep failures and go on, instead of raising the first.
        outcomes: What became of each partition, in the order of the calls of backends.
        failures: What failed the last time.
    """

    plugins: Sequence[Plugin]
    cache: Cache | None = None
    tell: Tell | None = None
    crew: Crew | None = None
    tolerant: bool = False
    outcomes: list[Outcome] = field(factory=list, init=False)
    failures: list[Done] = field(factory=list, init=False)
    _keys: Keys = field(factory=Keys, init=False)
    _lowered: dict[tuple[str, str], LoweredBackendModule] = field(factory=dict, init=False)
    # What was compiled before a failure, for the next plan.
    _kept: dict[Hashable, tuple[list[PreprocessResult], Outcome]] = field(factory=dict, init=False)

    def compile(self, splits: Mapping[str, Split]) -> dict[str, list[LoweredBackendModule]]:
        """Compile every partition of every method.

        Args:
            splits: The methods, split into programs.

        Returns:
            For each method its compiled partitions in plan order; nothing after a failure.

        Raises:
            CompileError: A backend is not loaded or failed; the text names plugin, partition,
                method and the source modules.
        """
        self.outcomes, self.failures, self._lowered = [], [], {}
        jobs = jobs_of(splits.values())
        for job in jobs:
            self._tell(job.partition, "waiting")
        order: dict[tuple[str, str], int] = {}
        tasks: list[Task] = []
        for batch in batches(jobs):
            for job in batch:
                order[job.partition.method, job.partition.name] = len(order)
            tasks += self._batch(batch)
        if self.crew:
            self._by_crew(self.crew, tasks)
        self.outcomes.sort(key=lambda outcome: order[outcome.method, outcome.partition])
        if self.cache:
            self.cache.close()
        if self.failures:
            return {}
        return {
            method: [self._lowered[method, partition.name] for partition in split.partitions]
            for method, split in splits.items()
        }

    def _batch(self, batch: Sequence[Job]) -> list[Task]:
        """Compile a batch, inside the context of its plugin; what is left is for the crew."""
        first, before, rest = batch[0].partition, dict(os.environ), []
        plugin = {plugin.name: plugin for plugin in self.plugins}[first.plugin]
        with settled_heap(), answers.compile_context(plugin, first.device):
            changes = {k: v for k, v in os.environ.items() if before.get(k) != v}
            for call in calls_of(batch):
                start = time.perf_counter()
                if self._from_before(call):
                    continue
                task = self._task(call, plugin, changes)
                if results := self._cached(task):
                    seconds = time.perf_counter() - start
                    self._take(Done(task, results, seconds=seconds), "hit")
                elif self.crew:
                    rest.append(task)
                else:
                    self._tell_all(call, "compiling")
                    self._finish(self._compiled(task, start))
        return rest

    def _by_crew(self, crew: Crew, tasks: Sequence[Task]) -> None:
        """Have the crew compile some tasks; of several that have one key, the first."""
        first: dict[str, Task] = {}
        once, again = list[Task](), list[Task]()
        for task in tasks:
            known = self._caches and task.key and first.setdefault(task.key, task) is not task
            (again if known else once).append(task)
        crew.begun = lambda task: self._tell_all(task.call, "compiling")
        for done in crew.run(once, self._here):
            self._finish(done)
        for task in again:
            if results := self._cached(task):
                self._take(Done(task, results), "hit")
            else:
                self._finish(self._here(task))

    def _here(self, task: Task) -> Done:
        """Compile a task in this process, inside the context of its plugin."""
        with settled_heap(), answers.compile_context(task.plugin, task.call.first.device):
            return self._compiled(task, time.perf_counter())

    def _compiled(self, task: Task, start: float) -> Done:
        try:
            results = task.call.compile()
        except CompileError as error:
            return Done(task, error=error, seconds=time.perf_counter() - start)
        if self._caches and task.key:
            task = evolve(task, why=self._store(results, task.key, about(task.call)))
        return Done(task, results, seconds=time.perf_counter() - start)

    def _finish(self, done: Done) -> None:
        """Take what was compiled, or note the failure.

        Raises:
            CompileError: It failed, and failures are not kept.
        """
        if not done.error:
            self._take(done, "bypassed" if done.task.why else "compiled")
            return
        self._tell_all(done.task.call, "failed", done.seconds)
        if not self.tolerant:
            raise done.error
        self.failures.append(done)

    def _take(self, done: Done, state: str) -> None:
        task, results = done.task, done.results or []
        why = task.why or (task.stays and f"compiled in this process: {task.stays}")
        outcome = Outcome("", "", "", state, why, done.seconds, task.key if self._caches else "")
        if self.tolerant:
            self._kept[_likeness(task.call)] = results, outcome
        self._use(task.call, results, outcome)

    def _use(self, call: Call, results: Sequence[PreprocessResult], outcome: Outcome) -> None:
        for number, (job, result) in enumerate(zip(call.jobs, results, strict=True)):
            partition = job.partition
            self._lowered[partition.method, partition.name] = _module(job, result)
            own = evolve(
                outcome,
                plugin=partition.plugin,
                method=partition.method,
                partition=partition.name,
                seconds=0.0 if number else outcome.seconds,
            )
            self.outcomes.append(own)
            self._tell(partition, own.state, own.seconds)

    @property
    def _caches(self) -> bool:
        return self.cache is not None and self.cache.enabled

    def _from_before(self, call: Call) -> bool:
        """Use what was compiled for the plan before, if this call is the same."""
        if not self._kept or (kept := self._kept.get(_likeness(call))) is None:
            return False
        self._use(call, *kept)
        return True

    def _task(self, call: Call, plugin: Plugin, environment: Mapping[str, str]) -> Task:
        """A call with its key, or why it has none; neither if nothing needs it."""
        if not self.crew and not self._caches:
            return Task(call, plugin)
        try:
            return Task(call, plugin, self._keys.key(call, plugin, environment))
        except Unhashable as error:
            return Task(call, plugin, why=str(error) if self._caches else "", stays=str(error))

    def _cached(self, task: Task) -> list[PreprocessResult] | None:
        entry = self.cache.load(task.key) if self.cache and task.key else None
        if entry is None or self.cache is None:
            return None
        try:
            return unpacked(entry, len(task.call.jobs), f"cache entry {task.key[:12]}")
        except CacheError:
            self.cache.forget(task.key)
            return None

    def _store(self, results: list[PreprocessResult], key: str, notes: Mapping[str, str]) -> str:
        """Keep results; why that is not possible, if it isn't."""
        try:
            entry = packed(results, key, notes)
        except Unstorable as error:
            return str(error)
        if self.cache:
            self.cache.store(entry)
        return ""

    def _tell_all(self, call: Call, state: str, seconds: float = 0.0) -> None:
        for job in call.jobs:
            self._tell(job.partition, state, seconds)

    def _tell(self, partition: Partition, state: str, seconds: float = 0.0) -> None:
        if self.tell:
            self.tell(partition, state, seconds)


def _likeness(call: Call) -> Hashable:
    """What two calls of one lowering have in common if they compile the same."""
    return call.backend, tuple(
        (
            evolve(job.partition, name="", split_by=None),
            repr(job.split.annotations.get(job.partition.name)),
            *fingerprint(job.program.graph),
        )
        for job in call.jobs
    )


def _module(job: Job, result: PreprocessResult) -> LoweredBackendModule:
    partition = job.partition
    module = LoweredBackendModule(
        edge_program=job.program,
        backend_id=partition.backend_id,
        processed_bytes=result.processed_bytes,
        compile_specs=[CompileSpec(spec.key, spec.value) for spec in partition.compile_specs],
        named_data_store_output=result.data_store_output,
    )
    module.meta = {"debug_handle_map": result.debug_handle_map}
    if getattr(result, "_delegate_info_meta", None) is not None:
        module.meta["_delegate_info_meta"] = result._delegate_info_meta
    return module
