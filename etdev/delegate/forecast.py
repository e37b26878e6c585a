"""The forecast: what a lowering would find in the cache, without compiling anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from etdev.delegate.cache_session import Memory
from etdev.delegate.compiler_calls import calls_of, context
from etdev.delegate.jobs import Job, batches, jobs_of
from etdev.delegate.split import Split
from etdev.delegate.tasks import Task
from etdev.errors import EtdevError
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.outcomes import Forecast


def forecast(
    splits: Mapping[str, Split], plugins: Mapping[str, Plugin], memory: Memory
) -> list[Forecast]:
    """Return the forecast of each partition, in plan order.

    Args:
        splits: The methods, split into programs.
        plugins: By name; asked for the context in which their partitions are compiled.
        memory: Asked for each call of a backend.
    """
    jobs = jobs_of(splits.values())
    known: dict[str, str] = {}
    found = {
        (one.method, one.partition): one
        for batch in batches(jobs)
        for one in _batch(batch, plugins[batch[0].partition.plugin], memory, known)
    }
    return [found[job.partition.method, job.partition.name] for job in jobs]


def _batch(
    batch: Sequence[Job], plugin: Plugin, memory: Memory, known: dict[str, str]
) -> list[Forecast]:
    if unfit := answers.probe(plugin).unfit:
        return list(_all(batch, "unfit", unfit))
    try:
        with context(plugin, batch[0].partition.device) as changes:
            tasks = [memory.task(call, plugin, changes) for call in calls_of(batch, plugin)]
            return [one for task in tasks for one in _task(task, memory, known)]
    except EtdevError as error:
        return list(_all(batch, "unfit", f"{error.who}: {error.what}"))


def _task(task: Task, memory: Memory, known: dict[str, str]) -> Iterator[Forecast]:
    call = task.call
    if not task.key:
        return _all(call.jobs, "bypassed", task.why or "there is no cache")
    if memory.results(task):
        return _all(call.jobs, "hit", key=task.key)
    if task.key in known:
        return _all(call.jobs, "hit", f"the same as {known[task.key]}", task.key)
    known[task.key] = call.first.where
    return _all(call.jobs, "miss", key=task.key)


def _all(jobs: Sequence[Job], state: str, why: str = "", key: str = "") -> Iterator[Forecast]:
    for job in jobs:
        partition = job.partition
        yield Forecast(partition.plugin, partition.method, partition.name, state, why, key)
