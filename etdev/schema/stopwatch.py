"""A stopwatch for the stages of a lowering, and its listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field, frozen

# Called with the name of a stage (etdev/schema/stages.py) and a detail, which is empty when the
# stage begins. A method `step` gets each `PartitionProgress`.
Listener = Callable[[str, str], None]


@frozen
class PartitionProgress:
    """The state of a partition, such as `forward/cpu_0`, and its wall time since it began.

    States are `waiting`, `compiling`, then `compiled`, `hit`, `bypassed` or `failed`.
    """

    plugin: str
    partition: str
    nodes: int
    state: str
    seconds: float = 0.0


@define
class Stopwatch:
    """A stopwatch for one lowering, which reports each stage to a listener."""

    listener: Listener | None = None
    seconds: dict[str, float] = field(factory=dict)
    _within: float = 0.0

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time a stage; repeated stages add up, and a nested stage does not count for the outer."""
        self.say(name, detail)
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
        """Report a stage to the listener."""
        if self.listener:
            self.listener(name, detail)

    def step(self, step: PartitionProgress) -> None:
        """Report the state of a partition to a listener with a method `step`."""
        if listen := getattr(self.listener, "step", None):
            listen(step)
