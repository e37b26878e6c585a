"""Measurements of one process, and the policy by which they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from etdev.errors import TuneError


def _at_least(least: float) -> Any:
    def check(_: object, attribute: Any, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            what = f"{attribute.name} is {value!r}"
            raise TuneError("policy", what, f"it must be a number of at least {least:g}")

    return check


@frozen
class Policy:
    """Settings for a measurement in one process.

    Args:
        threads: Threads of the runtime and its delegates.
        warmup: Untimed calls of each set of inputs.
        repetitions: Most timed calls of each set of inputs.
        seconds: Most time for the timed calls of a set.
        timeout_s: Time after which a process counts as hanging.
        warmup_s: Time to call the program before. With two threads, calls of microseconds were
            seen to take six times as long in the first milliseconds.
    """

    threads: int = field(default=1, validator=_at_least(1))
    warmup: int = field(default=3, validator=_at_least(0))
    repetitions: int = field(default=20, validator=_at_least(3))
    seconds: float = field(default=1.0, validator=_at_least(0))
    timeout_s: float = field(default=120.0, validator=_at_least(1))
    warmup_s: float = field(default=0.02, validator=_at_least(0))


@frozen
class Measurement:
    """A method as one process measured it.

    Args:
        times_ns: Wall times of each call of the case; none for calls that are not timed.
        error: Largest error of the outputs; None if they were not compared in this process.
        load_ns: Time to load program and method.
        memory_bytes: Highest resident memory.
        sentinel_ns: Times of the fixed calculation.
        others_cpu: Processors that everything else used.
        threads: Threads that were used.
        disturbance: Why the times can't be trusted; empty if nothing disturbed them.
    """

    times_ns: tuple[tuple[int, ...], ...]
    error: float | None = None
    load_ns: int = 0
    memory_bytes: int | None = None
    sentinel_ns: tuple[int, ...] = ()
    others_cpu: float | None = None
    threads: int | None = None
    disturbance: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Measurement:
        """Make a measurement of plain data.

        Raises:
            ValueError, TypeError, KeyError: The data is not a measurement.
        """
        times = tuple(tuple(map(int, calls)) for calls in data["times_ns"])
        if any(time <= 0 for calls in times for time in calls):
            raise ValueError("a time is not above 0")
        if data["error"] is not None and math.isnan(float(data["error"])):
            raise ValueError("an error is NaN")
        sentinel = tuple(map(int, data["sentinel_ns"]))
        return cls(**{**data, "times_ns": times, "sentinel_ns": sentinel})
