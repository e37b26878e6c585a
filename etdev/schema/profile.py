"""A profile of a run of a .pte: the time of its delegates, kernels and copies."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from etdev.schema.displayed import Displayed


@frozen
class Cost:
    """The cost per run of one delegate, or of all calls of one kernel or copy.

    Args:
        name: Partition, if the plan is known, else backend; or operator.
        kind: `delegate`, `kernel` or `copy`.
        ms: Time per run, the median over the runs.
        share: Part of the time of all listed costs.
        plugin: Owner of the delegate, or `portable`.
        modules: Source modules that it computes, if the plan is known.
        reasons: Why no plugin owns its nodes, if the plan is known.
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
class Instruction:
    """The time per run of an instruction of a chain; its name is as that of `Cost`."""

    chain: int
    index: int
    name: str
    ms: float


@frozen(repr=False)
class Profile(Displayed):
    """A profile of one method.

    Args:
        costs: The most expensive first.
        times: Milliseconds per run by partition or portable node, as far as the plan is known and
            the events can be matched with it.
        instructions: The instructions, in no order.
    """

    method: str
    costs: tuple[Cost, ...]
    runs: int
    times: Mapping[str, float] = field(factory=dict)
    instructions: tuple[Instruction, ...] = ()

    @property
    def ms(self) -> float:
        """Milliseconds of a run."""
        return sum(cost.ms for cost in self.costs)

    @property
    def summary(self) -> str:
        """The time of a run, and of its most expensive part."""
        most = f", {self.costs[0].name} {self.costs[0].share:.0%}" if self.costs else ""
        return f"{self.method}: {self.ms:.3f} ms{most}"
