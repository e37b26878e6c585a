"""Limits on the size, number and time of a plugin's partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, field, fields, frozen, validators

from etdev.errors import PluginError
from etdev.schema import reasons
from etdev.schema.converters import count, seconds
from etdev.schema.structuring import structured, table

_COUNT = validators.optional(count(1, PluginError, "limits"))
_CURE = "it must be a number of seconds above 0"
_SECONDS = validators.optional(seconds(PluginError, "limits", _CURE))


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

    Raises:
        PluginError: A value is not a number, or less than 1 node, 1 partition, or more than 0 s.
    """

    min_nodes: int | None = field(default=None, validator=_COUNT)
    max_partitions: int | None = field(default=None, validator=_COUNT)
    hook_timeout_s: float | None = field(default=None, validator=_SECONDS)
    compile_timeout_s: float | None = field(default=None, validator=_SECONDS)

    def over(self, others: Limits) -> Limits:
        """Return these limits, completed from others where a field is None."""
        own = {f.name: value for f in fields(Limits) if (value := getattr(self, f.name))}
        return evolve(others, **own)

    def refusals(self, partitions: Sequence[tuple[int, int]]) -> list[tuple[str, str] | None]:
        """Return reason code and text for each partition beyond the limits; None for the rest.

        Args:
            partitions: Number of nodes and position of the first node of each.
        """
        least, most = self.min_nodes or 0, self.max_partitions or len(partitions)
        small, many = reasons.MIN_NODES, reasons.MAX_PARTITIONS
        refusals = [
            (small.code, small.say(size=size, least=least)) if size < least else None
            for size, _ in partitions
        ]
        large = [index for index, refusal in enumerate(refusals) if refusal is None]
        large.sort(key=lambda index: (-partitions[index][0], partitions[index][1]))
        for index in large[most:]:
            refusals[index] = (many.code, many.say(most=most))
        return refusals


table(Limits, "mapping of limits", "write {'min_nodes': 3}")


def limits(value: object) -> dict[str, Limits]:
    """Return limits per plugin from `{"cpu": {"min_nodes": 3}}` or None."""
    if not isinstance(value, Mapping | None):
        cure = "write {'cpu': {'min_nodes': 3}}"
        raise PluginError("limits", f"{value!r} is not a mapping", cure)
    return structured(value or {}, dict[str, Limits], "limits", PluginError)
