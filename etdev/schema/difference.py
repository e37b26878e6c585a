"""The differences between two plans, or between the figures of two files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
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
    """A node that another owner has, or that is elsewhere.

    Args:
        method: Its method.
        node: Its name in the first; in the second if only that has it.
        op: Its op.
        module: Its module.
        before: Owner and device, such as `trt on cuda:0`; None if only the second has the node.
        after: Likewise; None if only the first has it.
    """

    method: str
    node: str
    op: str
    module: str
    before: str | None
    after: str | None


@frozen
class ModuleMove:
    """A module some of whose nodes moved.

    Args:
        method: Its method.
        module: Its path.
        before: Number of its nodes by owner and device.
        after: Likewise.
    """

    method: str
    module: str
    before: Mapping[str, int]
    after: Mapping[str, int]


@frozen
class Gained:
    """A partition, a copy or a plugin that only one of the two has, or that became another.

    Args:
        kind: `method`, `partition`, `copy`, `plugins`, or `contents` of a file; of a lock also
            `setup`.
        method: Its method; empty for plugins, setup and contents.
        before: What the first has, in words; None if it has none.
        after: Likewise of the second.
    """

    kind: str
    method: str
    before: str | None
    after: str | None


@frozen(repr=False)
class Difference(Displayed):
    """What is different in the second of two.

    Args:
        before: Name of the first.
        after: Name of the second.
        nodes: Nodes that moved, that are gone, or that are new.
        modules: Modules that have such nodes.
        parts: Partitions, copies and plugins that were gained, lost, or changed.
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
        kinds = {
            "node": self.nodes,
            "module": self.modules,
            "part": self.parts,
            "figure": self.figures,
        }
        counts = [
            f"{len(items)} {kind}{'s' * (len(items) > 1)}" for kind, items in kinds.items() if items
        ]
        return f"<{type(self).__name__} {', '.join(counts) or 'no change'}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return DIFFERENCE.stamped({"changed": bool(self), **CONVERTER.unstructure(self)})


@singledispatch
def compared(first: Any, second: Any) -> Any:
    """Return what is different in the second of two values, as `etdev.schema.report` says."""
    raise TypeError(f"no report compares values of {type(first).__name__}")
