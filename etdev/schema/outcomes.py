"""Outcomes of compiling partitions."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, instance_of, min_len


@frozen
class Bypass:
    """A plugin's answer for a partition that must not be cached.

    Args:
        why: The reason, for people: `kernels are tuned again at each compile`.
    """

    why: str = field(validator=and_(instance_of(str), min_len(1)))


@frozen
class Outcome:
    """The source of one partition's compiled bytes: its compiler or the cache.

    Args:
        plugin: Name of its plugin.
        method: Name of its method.
        partition: Name of the partition in the plan.
        state: `compiled` by its backend, `hit` in the cache, or `bypassed`: compiled because the
            cache can't hold it.
        why: Why the cache was bypassed, or why no worker compiled it although there were some;
            empty otherwise.
        seconds: Wall time of compiling or reading it. If a backend compiles several partitions in
            one call, the first of them has the whole time.
        key: The key of its entry in the cache; empty without one.
    """

    plugin: str
    method: str
    partition: str
    state: str
    why: str = ""
    seconds: float = 0.0
    key: str = ""
