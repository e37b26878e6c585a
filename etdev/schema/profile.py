"""A profile: what the time of a run of a .pte is spent on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from etdev.schema.colours import colours_of
from etdev.schema.modules import ModuleTime
from etdev.schema.sheet import Sheet, html, rich

if TYPE_CHECKING:
    from rich.console import Group


@frozen
class Span:
    """One event in one run.

    Args:
        name: ExecuTorch's name of the event, or the delegate or operator that is called.
        start_us: When it began, in microseconds since the first.
        length_us: How long it took.
        within: It is a part of a delegate or a kernel.
    """

    name: str
    start_us: float
    length_us: float
    within: bool


@frozen
class Cost:
    """What one delegate, or all calls of one kernel or copy, cost per run.

    Args:
        name: Partition, if the plan is known, else backend; or operator.
        kind: `delegate`, `kernel` or `copy`.
        calls: How often a run calls it.
        ms: Time per run, the median over the runs.
        share: Part of the time of all that is listed.
        plugin: Owner of the delegate, or `portable`.
        modules: Source modules that it computes, if the plan is known.
        reasons: Why no plugin has it, if the plan is known.
    """

    name: str
    kind: str
    calls: int
    ms: float
    share: float = 0.0
    plugin: str = ""
    modules: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@frozen
class Call:
    """One instruction that was timed.

    Args:
        chain: Which chain of instructions it is in.
        index: Which of its chain it is.
        name: Partition, if the plan is known, else backend; or operator.
        ms: Time per run.
    """

    chain: int
    index: int
    name: str
    ms: float


@frozen(repr=False)
class Profile:
    """A profile of one method.

    Args:
        method: Its name.
        costs: The most expensive first.
        runs: How many runs were timed.
        times: Milliseconds per run by partition or portable node, as far as the plan is known and
            as each can be told from others.
        modules: What source modules take of a run, likewise; most first.
        calls: The instructions, in no order.
        spans: Every event of the last run.
    """

    method: str
    costs: tuple[Cost, ...]
    runs: int
    times: Mapping[str, float] = field(factory=dict)
    modules: tuple[ModuleTime, ...] = ()
    calls: tuple[Call, ...] = ()
    spans: tuple[Span, ...] = ()

    @property
    def ms(self) -> float:
        """Milliseconds of a run."""
        return sum(cost.ms for cost in self.costs)

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        """The costs as a table, and those of modules, where they are known."""
        columns = ("what", "calls", "ms", "share", "owner", "modules", "why not delegated")
        costs = Sheet(columns, map(_cells, self.costs), f"{self.runs} runs")
        modules = Sheet(
            ("module", "ms", "share", "delegates", "portable nodes"), map(_module, self.modules)
        )
        return (costs, modules) if self.modules else (costs,)

    def __repr__(self) -> str:
        most = f", {self.costs[0].name} {self.costs[0].share:.0%}" if self.costs else ""
        return f"<{type(self).__name__} {self.method}: {self.ms:.3f} ms{most}>"

    def _repr_html_(self) -> str:
        owners = sorted({cost.plugin for cost in self.costs if cost.plugin})
        return html(self.sheets, colours_of((), owners))

    def __rich__(self) -> Group:
        return rich(self.sheets)


def _module(module: ModuleTime) -> tuple[str, ...]:
    times = (f"{module.ms:.3f}", f"{module.share:.0%}")
    return (module.path, *times, str(module.delegates or "-"), str(module.portable or "-"))


def _cells(cost: Cost) -> tuple[str, ...]:
    first, *others = cost.modules or ("-",)
    modules = f"{first} and {len(others)} more" if others else first
    numbers = (str(cost.calls), f"{cost.ms:.3f}", f"{cost.share:.0%}")
    reasons = "; ".join(cost.reasons) or "-"
    return (cost.name, *numbers, cost.plugin or "-", modules, reasons)
