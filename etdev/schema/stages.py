"""The stages of a lowering, timed and told to a listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field, frozen

# Told a stage and a detail. Stages are export, edge, plan and compile; then emit, write, audit
# and verify. A listener that is an object with a method `step` is also told each `Step`.
Listener = Callable[[str, str], None]


@frozen
class Step:
    """What became of a partition while it was compiled.

    Args:
        plugin: Name of its plugin.
        partition: Method and name, such as `forward/cpu_0`.
        nodes: How many nodes it has.
        state: `waiting`, `compiling`, then `compiled`, `hit`, `bypassed` or `failed`.
        seconds: What it took, in seconds of wall time.
    """

    plugin: str
    partition: str
    nodes: int
    state: str
    seconds: float = 0.0


@define
class Stages:
    """A stopwatch for one lowering.

    Args:
        listener: Told the stage and a detail, empty when the stage begins.
    """

    listener: Listener | None = None
    seconds: dict[str, float] = field(factory=dict)
    _within: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; one that happens again adds up, one within another counts for itself."""
        self.say(name)
        self.seconds.setdefault(name, 0.0)
        start, outer = time.perf_counter(), self._within
        self._within = 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] += spent - self._within
            self._within = outer + spent

    def say(self, name: str, detail: str = "") -> None:
        """Tell the listener what is going on."""
        if self.listener:
            self.listener(name, detail)

    def step(self, step: Step) -> None:
        """Tell a listener that wants to know what became of a partition."""
        if told := getattr(self.listener, "step", None):
            told(step)
