"""Requests to a target, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attrs import field, frozen
from attrs.validators import ge, instance_of


@frozen(kw_only=True)
class Policy:
    """Settings for a measurement in one process.

    Args:
        threads: Threads of the runtime and its delegates, set before anything is loaded.
        warmup: Untimed calls of each set of inputs.
        repetitions: Most timed calls of each set of inputs.
        seconds: Most time for the timed calls of a set. At least three calls are made, or one that
            takes longer than a second.
        timeout_s: Time after which the process is ended, and the result is a hang.
        warmup_s: Time to call the program before. With two threads, calls of microseconds were
            seen to take six times as long in the first milliseconds.
    """

    threads: int = field(default=1, validator=[instance_of(int), ge(1)])
    warmup: int = field(default=3, validator=[instance_of(int), ge(0)])
    repetitions: int = field(default=20, validator=[instance_of(int), ge(1)])
    seconds: float = 1.0
    timeout_s: float = 120.0
    warmup_s: float = 0.02


@frozen(eq=False)
class Request(Policy):
    """A process on the target that loads a .pte, calls it and times it.

    With `outputs`, the method is first called once with each set of inputs, in order and with its
    state carried from call to call; these outputs are returned. Then each set is timed in turn.

    Args:
        program: The .pte, on this machine.
        inputs: Sets of inputs, each flat: tensors, ints, floats and bools.
        data: Its .ptd files, on this machine.
        method: Name of the method.
        outputs: Return the outputs.
        timed: Positions of the sets that are timed; None for all. `times_ns` has an empty tuple for
            every other set.
    """

    program: Path
    inputs: tuple[tuple[Any, ...], ...]
    data: tuple[Path, ...] = ()
    method: str = "forward"
    outputs: bool = False
    timed: tuple[int, ...] | None = None


@frozen
class Result:
    """Times, outputs and memory of a process on the target.

    Args:
        times_ns: Wall time of each timed call, by set of inputs.
        outputs: Flat outputs by set of inputs; empty if they were not requested.
        memory_bytes: Highest resident memory of the process; None if unknown.
        error: Largest error of the outputs, which etdev fills in; None without outputs.
        metric: The user's metric of the outputs, which etdev fills in.
    """

    times_ns: tuple[tuple[int, ...], ...] = field()
    outputs: tuple[tuple[Any, ...], ...] = field(default=(), eq=False)
    memory_bytes: int | None = None
    error: float | None = None
    metric: float | None = None

    @times_ns.validator
    def _check(self, _: object, times_ns: tuple[tuple[int, ...], ...]) -> None:
        if any(time <= 0 for times in times_ns for time in times):
            raise ValueError("a time is not above 0")


@frozen
class Failure:
    """The reason why a candidate has no result; a finding about it, not an error of the tuning.

    Args:
        kind: `crash`, `hang`, or `refused` (an error of a plugin, ExecuTorch or its runtime).
        detail: The signal, the limit in seconds, or the first line of the error.
    """

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@runtime_checkable
class Runner(Protocol):
    """A runner that measures programs on this machine or on a target."""

    @property
    def name(self) -> str:
        """Its name in a report: `local`, or that of the host."""

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times depend on: CPU, cores, runtime version, backends, operating system.

        Called once per tuning. Measurements of different fingerprints are never mixed.

        Raises:
            RunError: The target can't be reached, or lacks the runtime.
        """

    def run(self, request: Request) -> Result | Failure:
        """Push the files that the target lacks, and run the program in a new process.

        Raises:
            RunError: The inputs don't fit the method, or the target is lost or its disk is full.
        """

    def close(self) -> None:
        """Remove what was pushed."""
