"""The differences between two plans, .pte files or locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from etdev.schema.documents import DIFFERENCE
from etdev.schema.report.sheet import Displayed
from etdev.schema.structuring import CONVERTER


@frozen
class Figure:
    """A number that changed."""

    what: str
    before: int
    after: int


@frozen
class Move:
    """A node that is new or gone, or that has another owner or device.

    It has its name in the first plan if that has it. Before and after are owner and device, such
    as `trt on cuda:0`; None where a plan lacks it.
    """

    method: str
    node: str
    op: str
    module: str
    before: str | None
    after: str | None


@frozen
class ModuleMove:
    """A module with nodes that moved, and the number of its nodes by owner and device."""

    method: str
    module: str
    before: Mapping[str, int]
    after: Mapping[str, int]


@frozen
class Gained:
    """A partition, a copy, a plugin or a setting that was added, removed or changed.

    Args:
        kind: `method`, `partition`, `copy`, `plugins`, or `contents` of a file; `setup` of a lock.
        method: Its method; empty for plugins, setup and contents.
        before: The first side's in words; None if it has none.
        after: The second side's in words; None if it has none.
    """

    kind: str
    method: str
    before: str | None
    after: str | None


@frozen(repr=False)
class Difference(Displayed):
    """The changes from one plan, .pte or lock to another, whose names are `before` and `after`.

    Its parts are partitions, copies, plugins and settings; its modules are those of its nodes.
    """

    before: str
    after: str
    nodes: tuple[Move, ...] = ()
    modules: tuple[ModuleMove, ...] = ()
    parts: tuple[Gained, ...] = ()
    figures: tuple[Figure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.modules or self.parts or self.figures)

    @property
    def summary(self) -> str:
        """The number of changes by kind."""
        kinds = ("node", "module", "part", "figure")
        counts = [(len(getattr(self, f"{kind}s")), kind) for kind in kinds]
        texts = [f"{count} {kind}{'s' * (count > 1)}" for count, kind in counts if count]
        return ", ".join(texts) or "no change"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return DIFFERENCE.stamped({"changed": bool(self), **CONVERTER.unstructure(self)})


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Figure, ...]:
    """Return the figures that differ; a figure missing on one side is 0 there."""
    names = dict.fromkeys([*before, *after])
    rows = [Figure(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return tuple(row for row in rows if row.before != row.after)


def outlined(
    method: str, delegates: Iterable[tuple[str, str]], up: int, down: int
) -> dict[str, int]:
    """Return the figures of a method's delegates, given by backend and device, and copies."""
    counts = Counter(delegates)
    return {
        **{f"{method}: {b} delegates on {d}": counts[b, d] for b, d in sorted(counts)},
        f"{method}: copies to a device": up,
        f"{method}: copies from a device": down,
    }
