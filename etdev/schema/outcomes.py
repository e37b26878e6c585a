"""Outcomes: what became of each partition when it was compiled."""

from __future__ import annotations

from attrs import field, frozen, validators

STATES = ("compiled", "hit", "bypassed")
FORECASTS = ("hit", "miss", "bypassed", "unfit")


@frozen
class Bypass:
    """What a plugin answers for a partition that is to be compiled afresh each time.

    Args:
        why: The reason, for people: `kernels are tuned anew at each compile`.
    """

    why: str = field(validator=validators.and_(validators.instance_of(str), validators.min_len(1)))


@frozen
class Outcome:
    """How the compiled bytes of one partition were had.

    Args:
        plugin: Name of its plugin.
        method: Name of its method.
        partition: Name of the partition in the plan.
        state: `compiled` by its backend, `hit` in the cache, or `bypassed`: compiled because the
            cache can't hold it.
        why: Why the cache was bypassed, or why no worker compiled it although there were some;
            empty otherwise.
        seconds: What compiling or reading it took, in seconds of wall time. A backend that compiles
            several partitions in one call counts for the first of them.
        key: The key of its entry in the cache; empty without one.
    """

    plugin: str
    method: str
    partition: str
    state: str = field(validator=validators.in_(STATES))
    why: str = ""
    seconds: float = 0.0
    key: str = ""


@frozen
class Forecast:
    """What a lowering would find in the cache for one partition.

    Args:
        plugin: Name of its plugin.
        method: Name of its method.
        partition: Name of the partition in the plan.
        state: `hit` in the cache, `miss`: it would be compiled, `bypassed`: compiled and not kept,
            or `unfit`: it can't be compiled on this machine, so that its key isn't known.
        why: Why it is bypassed or unfit, or which partition before it is the same; else empty.
        key: The key of its entry in the cache; empty without one.
    """

    plugin: str
    method: str
    partition: str
    state: str = field(validator=validators.in_(FORECASTS))
    why: str = ""
    key: str = ""
