"""Stages and partitions on a terminal, with their times, while a command works."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from attrs import define, field
from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.text import Text

from etdev.schema.stages import Step

# Partitions that are shown one by one; the others are counted.
_ROWS = 8
_STYLES = {"failed": "red", "hit": "green", "compiled": "green", "bypassed": "yellow"}


@define(eq=False)
class LiveStages:
    """What is on the terminal; told stages as a listener is, and steps of partitions.

    rich asks for it several times a second.
    """

    _stages: dict[str, float] = field(factory=dict)
    _stage: str = ""
    _detail: str = ""
    _since: float = 0.0
    _steps: dict[str, Step] = field(factory=dict)
    _begun: dict[str, float] = field(factory=dict)
    _spinner: Spinner = field(factory=lambda: Spinner("dots"))

    def __call__(self, stage: str, detail: str) -> None:
        """Begin a stage, or go on with it."""
        if stage != self._stage:
            self._end()
            self._stage, self._since = stage, time.perf_counter()
        self._detail = detail

    def step(self, step: Step) -> None:
        """Note what became of a partition."""
        if step.state == "compiling":
            self._begun[step.partition] = time.perf_counter()
        # The latest are last.
        self._steps.pop(step.partition, None)
        self._steps[step.partition] = step

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=Text(f"{self._stage} {self._summary()}".rstrip()))
        # rich asks in a thread of its own: a dict may grow meanwhile, a list of it does not.
        done = [Text(f"✓ {name} {spent:.1f} s") for name, spent in list(self._stages.items())]
        return Group(*done, self._spinner, *self._partitions())

    def _end(self) -> None:
        if self._stage:
            spent = time.perf_counter() - self._since
            self._stages[self._stage] = self._stages.get(self._stage, 0.0) + spent

    def _summary(self) -> str:
        if self._stage != "compile" or not self._steps:
            return self._detail
        counts = Counter(step.state for step in list(self._steps.values()))
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))

    def _partitions(self) -> Iterator[Text]:
        if self._stage != "compile":
            return
        steps = list(self._steps.values())
        active = [step for step in steps if step.state == "compiling"]
        ended = [step for step in steps if step.state in _STYLES]
        for step in (*ended[-(_ROWS // 2) :], *active[:_ROWS]):
            spent = step.seconds
            if step.state == "compiling":
                spent = time.perf_counter() - self._begun[step.partition]
            line = f"  {step.state} {step.partition}, {step.nodes} nodes, {spent:.1f} s"
            yield Text(line, style=_STYLES.get(step.state, ""))
