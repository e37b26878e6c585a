"""Limits on the size, number and time of a plugin's partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, field, fields, frozen

from etdev.errors import PluginError
from etdev.schema import reasons
from etdev.schema.converters import count, seconds
from etdev.schema.structuring import structured, table

_COUNT = count(1, PluginError, "limits", optional=True)
_SECONDS = seconds(PluginError, "limits", "it must be a number of seconds above 0", optional=True)


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

    @classmethod
    def of(cls, value: object) -> Limits:
        """Return limits from a mapping of the fields, or unchanged."""
        own: Limits = structured(value, cls, "limits", PluginError)
        return own

    def over(self, others: Limits) -> Limits:
        """Return these limits, completed from others where a field is None."""
        own = {f.name: value for f in fields(Limits) if (value := getattr(self, f.name))}
        return evolve(others, **own)

    def refusals(self, partitions: Sequence[tuple[int, int]]) -> list[tuple[str, str] | None]:
        """Return reason code and text for each partition beyond the limits; None for the rest.

        Args:
            partitions: Number of nodes and position of the first node of each.
        """
        refusals = [self._too_small(size) for size, _ in partitions]
        large = [index for index, refusal in enumerate(refusals) if refusal is None]
        large.sort(key=lambda index: (-partitions[index][0], partitions[index][1]))
        for index in large[self.max_partitions or len(large) :]:
            text = reasons.MAX_PARTITIONS.say(most=self.max_partitions)
            refusals[index] = (reasons.MAX_PARTITIONS.code, text)
        return refusals

    def _too_small(self, size: int) -> tuple[str, str] | None:
        if self.min_nodes is None or size >= self.min_nodes:
            return None
        return reasons.MIN_NODES.code, reasons.MIN_NODES.say(size=size, least=self.min_nodes)


table(Limits, "mapping of limits", "write {'min_nodes': 3}")


def limits(value: object) -> dict[str, Limits]:
    """Return limits per plugin from `{"cpu": {"min_nodes": 3}}` or None.

    Raises:
        PluginError: A value makes no sense; the message names the plugin.
    """
    if not isinstance(value, (Mapping, type(None))):
        cure = "write {'cpu': {'min_nodes': 3}}"
        raise PluginError("limits", f"{value!r} is not a mapping", cure)
    given: dict[str, Limits] = structured(value or {}, dict[str, Limits], "limits", PluginError)
    return given
