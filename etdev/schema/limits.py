"""Limits on a plugin's partitions, and the budget of a whole program."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import asdict, converters, evolve, field, frozen
from attrs.validators import and_, deep_iterable, ge, gt, instance_of, le, lt, min_len, optional

from etdev.errors import BudgetError, PluginError
from etdev.schema.converters import frozen_tuple
from etdev.schema.reasons import MAX_PARTITIONS, MIN_NODES
from etdev.schema.structuring import structured

_COUNT = optional(and_(instance_of(int), ge(1)))
_METHODS = optional(and_(min_len(1), deep_iterable(instance_of(str))))
_SHARE = optional(and_(instance_of((int, float)), ge(0), le(1)))
_SECONDS = optional(and_(instance_of((int, float)), gt(0), lt(math.inf)))


@frozen
class Limits:
    """Limits on a plugin's partitions and on the time of its calls.

    Nodes of a partition beyond the limits go to the next plugins.

    Args:
        min_nodes: Fewest nodes of a partition, not counting getitems.
        max_partitions: Most partitions per method, among those with enough nodes: the largest, and
            of equally large ones the first in the graph.
        hook_timeout_s: Seconds that one call of a hook may take, and the import of a plugin that a
            registry lists. A call that took longer is an error when it returns.
        compile_timeout_s: Seconds that one call of its backend's compiler may take. A worker
            process of `jobs` is ended after that time; in this process the call is an error when it
            returns.
        methods: The methods that the plugin is asked about; None for all.
    """

    min_nodes: int | None = field(default=None, validator=_COUNT)
    max_partitions: int | None = field(default=None, validator=_COUNT)
    hook_timeout_s: float | None = field(default=None, validator=_SECONDS)
    compile_timeout_s: float | None = field(default=None, validator=_SECONDS)
    methods: tuple[str, ...] | None = field(
        default=None, converter=converters.optional(frozen_tuple), validator=_METHODS
    )

    def over(self, others: Limits) -> Limits:
        """Return these limits, completed from others where a field is None."""
        return evolve(others, **asdict(self, filter=lambda _, value: value is not None))

    def refusals(self, partitions: Sequence[tuple[int, int]]) -> list[tuple[str, str] | None]:
        """Return reason code and text for each partition beyond the limits; None for the rest.

        Args:
            partitions: Number of nodes and position of the first node of each.
        """
        least, most = self.min_nodes or 0, self.max_partitions or len(partitions)
        kept = set(sorted((-size, first) for size, first in partitions if size >= least)[:most])

        def refusal(size: int, first: int) -> tuple[str, str] | None:
            if size < least:
                return MIN_NODES.code, MIN_NODES.say(size=size, least=least)
            fits = (-size, first) in kept
            return None if fits else (MAX_PARTITIONS.code, MAX_PARTITIONS.say(most=most))

        return [refusal(*partition) for partition in partitions]


def limits(value: object) -> dict[str, Limits]:
    """Return limits per plugin from `{"cpu": {"min_nodes": 3}}` or None."""
    return structured(value or {}, dict[str, Limits], "limits", PluginError)


@frozen
class Budget:
    """Limits of a whole program.

    Args:
        max_fallback_nodes: Most nodes on portable kernels, pinned nodes included, apart from those
            of `fallback_ops`. If left out it is 0, or without limit where another limit is given.
        fallback_ops: Globs of op names whose nodes may fall back in any number.
        runtime_bytes: Most bytes of the installed ExecuTorch's libraries that a C++ program needs
            for the `.pte`, as `etdev size` of etdev-cpp lists them. Checked before a `.pte` is
            written.
        fallback_share: Largest part of a method's FLOPs, and of the bytes that it moves, on
            portable kernels, such as 0.1, apart from those of `fallback_ops`.
    """

    max_fallback_nodes: int | None = field(
        default=None, validator=optional([instance_of(int), ge(0)])
    )
    fallback_ops: tuple[str, ...] = field(
        default=(), converter=frozen_tuple, validator=deep_iterable(instance_of(str))
    )
    runtime_bytes: int | None = field(default=None, validator=_COUNT)
    fallback_share: float | None = field(default=None, validator=_SHARE)

    @property
    def fallback_limit(self) -> float:
        """The most nodes on portable kernels, infinite without a limit."""
        if self.max_fallback_nodes is not None:
            return self.max_fallback_nodes
        others = self.fallback_share is not None or (self.runtime_bytes and not self.fallback_ops)
        return math.inf if others else 0


def budget(value: object) -> Budget:
    """Return a budget from a mapping of its fields, or unchanged."""
    return structured(value, Budget, "budget", BudgetError)
