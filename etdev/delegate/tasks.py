"""Tasks: a call that the cache doesn't have, and what came of it."""

from __future__ import annotations

from attrs import frozen
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.cache.entry import Entry
from etdev.delegate.compiler_calls import Call
from etdev.errors import CompileError
from etdev.registry.plugin import Plugin


@frozen(eq=False)
class Task:
    """A call to be compiled.

    Args:
        call: The call.
        plugin: Its plugin.
        key: Its key in the cache; empty if it has none.
        place: What tasks of the same backend, versions and circumstances have in common; empty
            without a key.
        why: Why it has none.
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
    """What came of a task.

    Args:
        task: The task.
        results: What the backend returned; None if it failed.
        error: Why it failed.
        entry: The results as bytes, if a worker sent them.
        seconds: What it took, in seconds of wall time.
        died: Whether a process died of it, so that this one must not try.
    """

    task: Task
    results: list[PreprocessResult] | None = None
    error: CompileError | None = None
    entry: Entry | None = None
    seconds: float = 0.0
    died: bool = False
