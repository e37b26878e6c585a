"""A profile: what the time of a run of a .pte is spent on."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from etdev.schema.display import Displayed
from etdev.schema.modules import ModuleTime


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
class Profile(Displayed):
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

    def __repr__(self) -> str:
        most = f", {self.costs[0].name} {self.costs[0].share:.0%}" if self.costs else ""
        return f"<{type(self).__name__} {self.method}: {self.ms:.3f} ms{most}>"
