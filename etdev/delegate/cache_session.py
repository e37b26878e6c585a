"""The compile cache as the calls of one lowering use it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import define, evolve, field, frozen
from blake3 import blake3
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache.canonical import Unhashable
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.key import Keys, about
from etdev.delegate.cache.packing import Unstorable, packed, unpacked
from etdev.delegate.compiler_calls import Call
from etdev.delegate.tasks import Task
from etdev.errors import CacheError
from etdev.graph.nodes import fingerprint
from etdev.registry.plugin import Plugin
from etdev.schema.compiler_cache import standing
from etdev.schema.outcomes import Outcome


@define(eq=False)
class Memory:
    """Results of earlier calls, in the cache and in this lowering.

    Args:
        cache: The cache; None without one.
        keys: The keys of calls, with the digests of their weights.
    """

    cache: Cache | None = None
    keys: Keys = field(factory=Keys, init=False)
    # Results from before a failure, for the next plan.
    _before: dict[Hashable, tuple[Sequence[PreprocessResult], Outcome]] = field(
        factory=dict, init=False
    )

    @property
    def enabled(self) -> bool:
        """True if there is a usable cache."""
        return self.cache is not None and self.cache.enabled

    def task(self, call: Call, plugin: Plugin, environment: Mapping[str, str]) -> Task:
        """Return the task of a call, with a key if there is a cache.

        Args:
            call: The call.
            plugin: Its plugin.
            environment: What its compile context changed in the environment of the process.
        """
        task = Task(call, plugin)
        return self.named(task, environment) if self.enabled else task

    def named(self, task: Task, environment: Mapping[str, str]) -> Task:
        """Return a task with its key, which workers always need, or with why it has none."""
        try:
            name = self.keys.name(task.call, task.plugin, environment)
        except Unhashable as error:
            return evolve(task, why=str(error) if self.enabled else "", stays=str(error))
        return evolve(task, key=name.key, place=name.place)

    def results(self, task: Task) -> list[PreprocessResult] | None:
        """Return the results of a task from the cache, complete after `close`, or None."""
        entry = self.cache.load(task.key) if self.cache and task.key else None
        if entry is None or self.cache is None:
            return None
        who = f"cache entry {task.key[:12]}"
        try:
            return unpacked(entry, len(task.call.jobs), who, self.keys.weights)
        except CacheError:
            self.cache.forget(task.key)
            return None

    def keep(self, task: Task, results: Sequence[PreprocessResult]) -> Task:
        """Keep the results of a task; return the task, with the reason if that is not possible."""
        if not self.cache or not self.enabled or not task.key:
            return task
        try:
            self.cache.store(packed(results, task.key, about(task.call), self.keys.weights))
        except Unstorable as error:
            return evolve(task, why=str(error))
        return task

    @contextmanager
    def compiler_cache(self, task: Task) -> Iterator[None]:
        """Let the compiler of a task use the cache for its own data."""
        cache = self.cache if self.enabled and task.place else None
        with standing(CompilerCache(cache, task.call, task.place) if cache else None):
            yield

    def before(self, call: Call) -> tuple[Sequence[PreprocessResult], Outcome] | None:
        """Return the results of an equal call of the plan before, if there is one."""
        return self._before.get(_likeness(call)) if self._before else None

    def note(self, call: Call, results: Sequence[PreprocessResult], outcome: Outcome) -> None:
        """Remember results for the next plan."""
        self._before[_likeness(call)] = results, outcome

    def close(self) -> None:
        """Wait for the weights of results from the cache, and trim the cache."""
        self.keys.weights.settle()
        if self.cache:
            self.cache.close()


@frozen
class CompilerCache:
    """The data that a compiler keeps in the cache for itself.

    Args:
        cache: The cache.
        call: The call that is compiled.
        place: Calls with the same place share their data.
    """

    cache: Cache
    call: Call
    place: str

    def load(self, name: bytes) -> bytes | None:
        """Return the data under a name; None without it."""
        entry = self.cache.load(self._key(name))
        return bytes(entry.blobs[0]) if entry and len(entry.blobs) == 1 else None

    def store(self, name: bytes, data: bytes) -> None:
        """Keep data under a name."""
        about = {"plugin": self.call.first.plugin, "backend": self.call.backend.__qualname__}
        self.cache.store(Entry(self._key(name), {**about, "device": "", "nodes": ""}, None, [data]))

    def _key(self, name: bytes) -> str:
        return str(blake3(f"kept in {self.place} ".encode() + name).hexdigest())


def _likeness(call: Call) -> Hashable:
    """Return a value that two calls of one lowering share if they compile the same."""
    return call.backend, tuple(
        (
            evolve(job.partition, name="", split_by=None),
            repr(job.split and job.split.annotations.get(job.partition.name)),
            *fingerprint(job.program.graph),
        )
        for job in call.jobs
    )
