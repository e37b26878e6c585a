"""Tasks: calls that the cache doesn't have, and their outcomes."""

from __future__ import annotations

from attrs import frozen
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.compiler_calls import Call, context
from etdev.errors import CompileError
from etdev.registry.plugin import Plugin
from etdev.schema.partition import Partition


@frozen(eq=False)
class Task:
    """A call to be compiled.

    Args:
        call: The call.
        plugin: Its plugin.
        key: Its key in the cache; empty without one.
        place: Digest that tasks of the same backend, versions and circumstances share; empty
            without a key.
        why: Why it has no key.
        stays: Why it is compiled in this process although there are workers; empty if it isn't.
    """

    call: Call
    plugin: Plugin
    key: str = ""
    place: str = ""
    why: str = ""
    stays: str = ""

    @property
    def limit_s(self) -> float | None:
        """Seconds that compiling it may take; None for any."""
        return self.plugin.limits.compile_timeout_s


@frozen(eq=False)
class Done:
    """A task that was compiled, or failed.

    Args:
        task: The task.
        results: The results of the backend; None if it failed.
        error: Why it failed.
        seconds: Wall time.
        died: True if a process died of it, so that this one must not try.
    """

    task: Task
    results: list[PreprocessResult] | None = None
    error: CompileError | None = None
    seconds: float = 0.0
    died: bool = False

    def faults(self) -> list[tuple[Partition, CompileError]]:
        """Return the partitions that the backend fails on, with its error on each.

        A backend that compiles several together is given each alone. If it fails on none alone, or
        if a process died of the call, all of them are returned.
        """
        call, error = self.task.call, self.error
        assert error is not None
        all_faults = [(job.partition, error) for job in call.jobs]
        if len(call.jobs) == 1 or self.died:
            return all_faults
        faults = []
        with context(self.task.plugin, call.first.device):
            for job in call.jobs:
                try:
                    Call(call.backend, (job,), True).compile(self.task.limit_s)
                except CompileError as fault:
                    faults.append((job.partition, fault))
        return faults or all_faults
