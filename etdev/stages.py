"""Stages of a lowering: their names, their times, and somebody to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

# The order in which they happen; `emit` comes with to_executorch.
STAGES = ("export", "edge", "plan", "compile", "emit", "write")
Listener = Callable[[str, str], None]


@define
class Stages:
    """A stopwatch for one lowering.

    Args:
        listener: Told the stage and a detail, empty when the stage begins.
    """

    listener: Listener | None = None
    seconds: dict[str, float] = field(factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; one that happens again adds up."""
        self.say(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def say(self, name: str, detail: str = "") -> None:
        """Tell the listener what is going on."""
        if self.listener:
            self.listener(name, detail)
