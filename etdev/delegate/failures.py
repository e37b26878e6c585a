"""Failures: which partitions are to blame when a backend fails on several at once."""

from __future__ import annotations

from etdev.delegate.compiler_calls import Call
from etdev.delegate.tasks import Done
from etdev.errors import CompileError
from etdev.registry import answers
from etdev.schema.partition import Partition
from etdev.upstream.collector import settled_heap


def guilty(done: Done) -> list[tuple[Partition, CompileError]]:
    """The partitions that a backend fails on, with its error on each.

    A backend that compiles several together is given each alone. All are guilty if it fails on none
    alone, or if a process died of the call.
    """
    call, error = done.task.call, done.error
    assert error is not None
    if len(call.jobs) == 1 or done.died:
        return [(job.partition, error) for job in call.jobs]
    faults = []
    with settled_heap(), answers.compile_context(done.task.plugin, call.first.device):
        for job in call.jobs:
            try:
                Call(call.backend, (job,), True).compile(done.task.limit_s)
            except CompileError as fault:
                faults.append((job.partition, fault))
    return faults or [(job.partition, error) for job in call.jobs]
