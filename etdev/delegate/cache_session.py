"""Memory: what the calls of one lowering find in the cache, and leave there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import define, evolve, field, frozen
from blake3 import blake3
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.faithful import Unhashable
from etdev.delegate.cache.key import Keys, about
from etdev.delegate.cache.packing import Unstorable, packed, unpacked
from etdev.delegate.cache.weight_copies import Copies
from etdev.delegate.compiler_calls import Call
from etdev.delegate.tasks import Task
from etdev.errors import CacheError
from etdev.graph.nodes import fingerprint
from etdev.registry.plugin import Plugin
from etdev.schema.compiler_cache import standing
from etdev.schema.outcomes import Outcome


@define(eq=False)
class Memory:
    """The cache as the calls of one lowering see it.

    Args:
        cache: The cache; None for none.
        keys: Makes their keys, and has the digests of their weights.
        copies: Copies these into what the cache has; `close` waits for it.
    """

    cache: Cache | None = None
    keys: Keys = field(factory=Keys, init=False)
    copies: Copies = field(factory=Copies, init=False)
    # What was compiled before a failure, for the next plan.
    _before: dict[Hashable, tuple[Sequence[PreprocessResult], Outcome]] = field(
        factory=dict, init=False
    )

    @property
    def enabled(self) -> bool:
        """Whether there is a cache."""
        return self.cache is not None and self.cache.enabled

    def task(self, call: Call, plugin: Plugin, environment: Mapping[str, str]) -> Task:
        """A call with its key, or why it has none; neither if there is no cache.

        Args:
            call: The call.
            plugin: Its plugin.
            environment: What its compile context changed in the environment of the process.
        """
        task = Task(call, plugin)
        return self.named(task, environment) if self.enabled else task

    def named(self, task: Task, environment: Mapping[str, str]) -> Task:
        """A task with its key, which workers need without a cache, too; or why it has none."""
        try:
            name = self.keys.name(task.call, task.plugin, environment)
        except Unhashable as error:
            return evolve(task, why=str(error) if self.enabled else "", stays=str(error))
        return evolve(task, key=name.key, place=name.place)

    def results(self, task: Task) -> list[PreprocessResult] | None:
        """What the cache has for a task; None without it."""
        entry = self.cache.load(task.key) if self.cache and task.key else None
        if entry is None or self.cache is None:
            return None
        who = f"cache entry {task.key[:12]}"
        try:
            return unpacked(entry, len(task.call.jobs), who, self.keys.weights, self.copies)
        except CacheError:
            self.cache.forget(task.key)
            return None

    def keep(self, task: Task, results: Sequence[PreprocessResult]) -> Task:
        """Keep what was compiled; the task, with why that is not possible if it isn't."""
        if not self.enabled or not task.key:
            return task
        try:
            entry = packed(results, task.key, about(task.call), self.keys.weights)
        except Unstorable as error:
            return evolve(task, why=str(error))
        if self.cache:
            self.cache.store(entry)
        return task

    @contextmanager
    def shelf(self, task: Task) -> Iterator[None]:
        """Have the compiler of a task find what it kept for itself."""
        known = self.cache if self.enabled and task.place else None
        with standing(CacheShelf(known, task.call, task.place) if known else None):
            yield

    def before(self, call: Call) -> tuple[Sequence[PreprocessResult], Outcome] | None:
        """What was compiled for the plan before, if there is the same call in this one."""
        return self._before.get(_likeness(call)) if self._before else None

    def note(self, call: Call, results: Sequence[PreprocessResult], outcome: Outcome) -> None:
        """Remember what was compiled for the next plan."""
        self._before[_likeness(call)] = results, outcome

    def close(self) -> None:
        """Wait for the weights of what the cache had, and trim the cache."""
        self.copies.settle()
        if self.cache:
            self.cache.close()


@frozen
class CacheShelf:
    """A shelf in the cache.

    Args:
        cache: The cache.
        call: What is being compiled.
        place: Calls that have it in common share what they keep.
    """

    cache: Cache
    call: Call
    place: str

    def load(self, name: bytes) -> bytes | None:
        """What is kept under a name; None without it."""
        entry = self.cache.load(self._key(name))
        return bytes(entry.blobs[0]) if entry and len(entry.blobs) == 1 else None

    def store(self, name: bytes, data: bytes) -> None:
        """Keep something under a name."""
        about = {"plugin": self.call.first.plugin, "backend": self.call.backend.__qualname__}
        self.cache.store(Entry(self._key(name), {**about, "device": "", "nodes": ""}, None, [data]))

    def _key(self, name: bytes) -> str:
        return str(blake3(f"kept in {self.place} ".encode() + name).hexdigest())


def _likeness(call: Call) -> Hashable:
    """What two calls of one lowering have in common if they compile the same."""
    return call.backend, tuple(
        (
            evolve(job.partition, name="", split_by=None),
            repr(job.split and job.split.annotations.get(job.partition.name)),
            *fingerprint(job.program.graph),
        )
        for job in call.jobs
    )
