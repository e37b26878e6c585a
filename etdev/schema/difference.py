"""The differences between two plans, .pte files or locks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from etdev.schema.display import Displayed
from etdev.schema.documents import CONVERTER, DIFFERENCE


@frozen
class Figure:
    """A number that changed."""

    what: str
    before: int
    after: int


@frozen
class Move:
    """A node that is new or gone, or that has another owner or device.

    Args:
        method: Its method.
        node: Its name in the first plan; in the second plan if only that has it.
        op: Its op.
        module: Its module.
        before: Owner and device, such as `trt on cuda:0`; None if only the second plan has it.
        after: Owner and device in the second plan; None if only the first plan has it.
    """

    method: str
    node: str
    op: str
    module: str
    before: str | None
    after: str | None


@frozen
class ModuleMove:
    """A module with nodes that moved.

    Args:
        method: Its method.
        module: Its path.
        before: Number of its nodes by owner and device in the first plan.
        after: Number of its nodes by owner and device in the second plan.
    """

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
    """The changes from one plan, .pte or lock to another.

    Args:
        before: Name of the first.
        after: Name of the second.
        nodes: Nodes that are new or gone, or that have another owner or device.
        modules: Modules of these nodes.
        parts: Partitions, copies, plugins and settings that were added, removed or changed.
        figures: Numbers that changed.
    """

    before: str
    after: str
    nodes: tuple[Move, ...] = ()
    modules: tuple[ModuleMove, ...] = ()
    parts: tuple[Gained, ...] = ()
    figures: tuple[Figure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.modules or self.parts or self.figures)

    def __repr__(self) -> str:
        kinds = ("node", "module", "part", "figure")
        counts = [(len(getattr(self, f"{kind}s")), kind) for kind in kinds]
        texts = [f"{count} {kind}{'s' * (count > 1)}" for count, kind in counts if count]
        return f"<{type(self).__name__} {', '.join(texts) or 'no change'}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return DIFFERENCE.stamped({"changed": bool(self), **CONVERTER.unstructure(self)})
