"""Limits: how small a plugin's partitions may be, and how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Attribute, evolve, field, fields, frozen

from etdev.errors import PluginError
from etdev.schema import reasons
from etdev.schema.structuring import structured, table


def _check_count(_: Limits, attribute: Attribute[Any], value: object) -> None:
    # bool is an int in Python.
    if value is not None and (type(value) is not int or value < 1):
        what = f"{attribute.name} is {value!r}"
        raise PluginError("limits", what, "it must be a whole number of at least 1")


def _check_seconds(_: Limits, attribute: Attribute[Any], value: object) -> None:
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < float(str(value)) < float("inf"):
        what = f"{attribute.name} is {value!r}"
        raise PluginError("limits", what, "it must be a number of seconds above 0")


@frozen
class Limits:
    """Limits on a plugin's partitions, of which those beyond are given up, and on its time.

    Args:
        min_nodes: Fewest nodes of a partition, getitems not counted.
        max_partitions: Most partitions per method, among those with enough nodes: the largest
            stay, and of equally large ones the first in the graph.
        hook_timeout_s: Seconds that one call of a hook may take, and in a registry the import of
            the plugin. A call that took longer is an error when it returns.
        compile_timeout_s: Seconds that one call of its backend's compiler may take. A worker
            process of `jobs` that takes longer is ended; in this process it is an error when the
            call returns.

    Raises:
        PluginError: One is not a number, or not of at least 1 node, 1 partition, more than 0 s.
    """

    min_nodes: int | None = field(default=None, validator=_check_count)
    max_partitions: int | None = field(default=None, validator=_check_count)
    hook_timeout_s: float | None = field(default=None, validator=_check_seconds)
    compile_timeout_s: float | None = field(default=None, validator=_check_seconds)

    @classmethod
    def of(cls, value: object) -> Limits:
        """Limits from a mapping of the fields, or as they are."""
        own: Limits = structured(value, cls, "limits", PluginError)
        return own

    def over(self, others: Limits) -> Limits:
        """These limits, completed with others where they say nothing."""
        own = {f.name: value for f in fields(Limits) if (value := getattr(self, f.name))}
        return evolve(others, **own)

    def refusals(self, partitions: Sequence[tuple[int, int]]) -> list[tuple[str, str] | None]:
        """Reason code and text for each partition that is given up, None for one that stays.

        Args:
            partitions: For each its number of nodes and the position of its first node.
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
    """Limits per plugin of `{"cpu": {"min_nodes": 3}}`, or of None.

    Raises:
        PluginError: One can't be read; the text names the plugin.
    """
    if not isinstance(value, (Mapping, type(None))):
        cure = "write {'cpu': {'min_nodes': 3}}"
        raise PluginError("limits", f"{value!r} is not a mapping", cure)
    given: dict[str, Limits] = structured(value or {}, dict[str, Limits], "limits", PluginError)
    return given
