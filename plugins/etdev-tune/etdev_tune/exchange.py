"""The exchange with a target: what it is asked to run, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attrs import field, frozen

# What becomes of a candidate that gives no result.
CRASH = "crash"
HANG = "hang"
REFUSED = "refused"
SLOW = "slow"
UNTRIED = "untried"
BUDGET_SPENT = "the budget was spent"


@frozen(eq=False)
class Request:
    """One process on the target: load a .pte, call it, time it.

    The method is loaded afresh. If `outputs` is set, it is first called once with each set of
    inputs, in order, so that its state is carried from call to call; those outputs come back. Then
    each set in turn has `warmup` calls and up to `repetitions` calls under the clock, fewer of both
    when `seconds` are over, but no fewer than three timed calls, or one if that takes longer. Where
    calls are short, a copy of the method is called for `warmup_s` before.

    Args:
        program: The .pte, on this machine.
        inputs: Sets of inputs, each flat: tensors, ints, floats and bools.
        data: Its .ptd files, on this machine.
        method: Which method.
        outputs: Whether the outputs come back.
        warmup: Calls of each set before the clock starts.
        warmup_s: Time for which threads, caches and the processor's clock may get going before.
        repetitions: Most timed calls of each set; 0 times nothing.
        seconds: Most time for the timed calls of one set.
        threads: Threads of the runtime and of its delegates, fixed before anything is loaded.
        timed: Positions of the sets that are timed; None for all. `times_ns` has an empty tuple for
            the others.
        profile: Whether an ETDump of one more call of each set comes back.
        timeout_s: After that long the process is ended, and what comes back is a hang.
    """

    program: Path
    inputs: tuple[tuple[Any, ...], ...]
    data: tuple[Path, ...] = ()
    method: str = "forward"
    outputs: bool = False
    warmup: int = 3
    repetitions: int = 20
    seconds: float = 2.0
    threads: int = 1
    timed: tuple[int, ...] | None = None
    profile: bool = False
    timeout_s: float = 120.0
    warmup_s: float = 0.02


@frozen(eq=False)
class Result:
    """What a target answers.

    Args:
        times_ns: Per set of inputs, the wall time of each timed call.
        outputs: Per set of inputs, the flat outputs of the first, untimed calls; empty if they were
            not asked for.
        load_ns: Time to load program and method.
        sentinel_ns: Times of one fixed calculation, before, between the sets and after them. They
            say how fast the target itself was just then.
        others_cpu: Processors that everything else on the target used meanwhile, such as 0.3; None
            if it can't be told.
        memory_bytes: Highest resident memory of the process; None if it can't be told.
        threads: Threads that were really used; None if it can't be told.
        etdump: The ETDump, if it was asked for and the runtime writes one.
    """

    times_ns: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[Any, ...], ...] = ()
    load_ns: int = 0
    sentinel_ns: tuple[int, ...] = ()
    others_cpu: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    etdump: bytes | None = None


@frozen
class Failure:
    """A candidate that gives no result, which is a finding about it and not an error of the tuning.

    Args:
        kind: `crash`, `hang`, `refused` (the runtime's own error), `slow` (much slower than others,
            and given up), or `untried`, which says nothing about it: the budget was spent.
        detail: The signal, the limit in seconds, or the first line of the error.
    """

    kind: str
    detail: str = field(default="")

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@runtime_checkable
class Runner(Protocol):
    """A target: this machine, one behind ssh, a device behind adb."""

    @property
    def name(self) -> str:
        """How it was asked for, such as `local` or `ssh:host`."""

    def fingerprint(self) -> Mapping[str, str]:
        """What its times depend on: CPU, cores, runtime version, backends, operating system.

        Measurements of different fingerprints are never mixed. Asked once per tuning.

        Raises:
            RunError: The target isn't there, or lacks the runtime.
        """

    def run(self, request: Request) -> Result | Failure:
        """Push the files that the target lacks, run them in a new process, pull what it answers.

        Raises:
            RunError: The target is lost, its disk is full: nothing is known about the candidate.
        """

    def close(self) -> None:
        """Remove what was pushed."""
