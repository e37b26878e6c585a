"""Compilation: partitions that the cache doesn't have are compiled by ExecuTorch's backends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.lowered_backend_module import LoweredBackendModule

from etdev.delegate.backends import check_namesake
from etdev.delegate.cache.cache import Memory
from etdev.delegate.compiler_calls import Call, Done, Job, Task, batches, calls_of, context
from etdev.delegate.executors.dispatch import Dispatcher
from etdev.delegate.split import Split
from etdev.errors import CompileError
from etdev.registry.plugin import Plugin
from etdev.schema.outcomes import Outcome
from etdev.schema.partition import Partition
from etdev.upstream.shortcuts.collector import without_full_collections

# Called with a partition, its new state, and the seconds that it took.
Progress = Callable[[Partition, str, float], None]


@define(eq=False)
class Compiler:
    """Compiles the partitions of a program; again, if some of them failed and were planned anew.

    Args:
        plugins: Asked for the context in which their partitions are compiled.
        memory: Results of earlier calls; gets the new ones.
        progress: Called when a partition is `waiting`, `compiling`, `failed`, or has an outcome.
        dispatcher: Gives calls to workers; None to compile in this process, one after the other.
        tolerant: Keep failures and go on, instead of raising the first.
        outcomes: The outcome of each partition, in the order of the calls of backends.
        failures: The partitions that their backends failed on, or whose backend isn't loaded.
        modules: The compiled partitions, by method and name.
    """

    plugins: Sequence[Plugin]
    memory: Memory = field(factory=Memory)
    progress: Progress = lambda *_: None
    dispatcher: Dispatcher | None = None
    tolerant: bool = False
    outcomes: list[Outcome] = field(factory=list, init=False)
    failures: list[tuple[Partition, CompileError]] = field(factory=list, init=False)
    modules: dict[tuple[str, str], LoweredBackendModule] = field(factory=dict, init=False)
    _backends: dict[str, type[BackendDetails]] = field(factory=dict, init=False)
    _failed: list[Done] = field(factory=list, init=False)
    # Results of the plans before a failure, by key.
    _before: dict[str, tuple[Sequence[PreprocessResult], Outcome]] = field(factory=dict, init=False)

    @without_full_collections()
    def compile(self, splits: Mapping[str, Split]) -> dict[str, list[LoweredBackendModule]]:
        """Return for each method its compiled partitions in plan order; nothing after a failure.

        Raises:
            CompileError: A backend is not loaded, has a namesake, or failed; the text names plugin,
                partition, method and the source modules.
        """
        self.outcomes, self.failures, self._failed = [], [], []
        self.modules, self._backends = {}, {}
        for split in splits.values():
            for partition in split.partitions:
                self.progress(partition, "waiting", 0.0)
        grouped = batches(splits.values())
        tasks = [task for batch in grouped for task in self._batch(batch)]
        if self.dispatcher:
            self._by_workers(self.dispatcher, tasks)
        partitions = [job.partition for batch in grouped for job in batch]
        order = {(p.method, p.name): number for number, p in enumerate(partitions)}
        self.outcomes.sort(key=lambda outcome: order[outcome.method, outcome.partition])
        self.memory.close()
        # A batch that failed is compiled one by one, outside of the contexts before.
        self.failures += [fault for done in self._failed for fault in done.faults()]
        if self.failures:
            return {}
        return {
            method: [self.modules[method, partition.name] for partition in split.partitions]
            for method, split in splits.items()
        }

    def _plugin_of(self, batch: Sequence[Job]) -> Plugin:
        name = batch[0].partition.plugin
        return next(plugin for plugin in self.plugins if plugin.name == name)

    def _task(self, call: Call, environment: Mapping[str, str]) -> Task:
        """Return the task of a call; without a cache, one that is sent gets its key then."""
        keyed = self.memory.enabled or self.tolerant
        return self.memory.task(call, environment) if keyed else Task(call)

    def _batch(self, batch: Sequence[Job]) -> list[Task]:
        """Compile a batch inside the context of its plugin; return the tasks for the dispatcher."""
        plugin, rest = self._plugin_of(batch), list[Task]()
        with context(plugin, batch[0].partition.device) as changes:
            for call in self._calls(batch, plugin):
                check_namesake(call.first, call.backend, self._backends)
                start = time.perf_counter()
                task = self._task(call, changes)
                if earlier := self._before.get(task.key):
                    self._use(call, *earlier)
                elif results := self.memory.results(task):
                    self._take(Done(task, results, seconds=time.perf_counter() - start), "hit")
                elif self.dispatcher:
                    rest.append(task)
                else:
                    self._tell_all(call, "compiling")
                    self._finish(self._compiled(task, start))
        return rest

    def _calls(self, batch: Sequence[Job], plugin: Plugin) -> list[Call]:
        """Return the calls of a batch; none if its backend isn't loaded and failures are kept."""
        try:
            return calls_of(batch, plugin)
        except CompileError as error:
            if not self.tolerant:
                raise
            self.failures += [(job.partition, error) for job in batch]
            return []

    def _by_workers(self, dispatcher: Dispatcher, tasks: Sequence[Task]) -> None:
        """Compile tasks by workers, those of the same key only once."""
        first: dict[str, Task] = {}
        once, again = list[Task](), list[Task]()
        for task in tasks:
            shares = self.memory.enabled and task.key
            known = shares and first.setdefault(task.key, task) is not task
            (again if known else once).append(task)
        dispatcher.begun = lambda task: self._tell_all(task.call, "compiling")
        for done in dispatcher.run(once, self._here):
            self._finish(done)
        for task in again:
            if results := self.memory.results(task):
                self._take(Done(task, results), "hit")
            else:
                self._finish(self._here(task))

    def _here(self, task: Task) -> Done:
        """Compile a task in this process, inside the context of its plugin."""
        with context(task.call.plugin, task.call.first.device):
            return self._compiled(task, time.perf_counter())

    def _compiled(self, task: Task, start: float) -> Done:
        try:
            with self.memory.compiler_cache(task):
                results = task.call.compile()
        except CompileError as error:
            return Done(task, error=error, seconds=time.perf_counter() - start)
        task = self.memory.keep(task, results)
        return Done(task, results, seconds=time.perf_counter() - start)

    def _finish(self, done: Done) -> None:
        """Take the results of a task, or note its failure; raise it if failures are not kept."""
        if not done.error:
            bypassed = self.memory.enabled and done.task.why
            self._take(done, "bypassed" if bypassed else "compiled")
            return
        self._tell_all(done.task.call, "failed", done.seconds)
        if not self.tolerant:
            raise done.error
        self._failed.append(done)

    def _take(self, done: Done, state: str) -> None:
        task, results = done.task, done.results or []
        key, why = (task.key, task.why) if self.memory.enabled else ("", "")
        why = why or (task.stays and f"compiled in this process: {task.stays}")
        outcome = Outcome("", "", "", state, why, done.seconds, key)
        if self.tolerant and task.key:
            self._before[task.key] = results, outcome
        self._use(task.call, results, outcome)

    def _use(self, call: Call, results: Sequence[PreprocessResult], outcome: Outcome) -> None:
        for number, (job, result) in enumerate(zip(call.jobs, results, strict=True)):
            partition = job.partition
            self.modules[partition.method, partition.name] = job.module(result)
            own = evolve(
                outcome,
                plugin=partition.plugin,
                method=partition.method,
                partition=partition.name,
                seconds=0.0 if number else outcome.seconds,
            )
            self.outcomes.append(own)
            self.progress(partition, own.state, own.seconds)

    def _tell_all(self, call: Call, state: str, seconds: float = 0.0) -> None:
        for job in call.jobs:
            self.progress(job.partition, state, seconds)
