"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attrs import Attribute

from etdev.errors import ClaimError

if TYPE_CHECKING:
    from torch.fx import Node


def node_name(value: Node | str) -> str:
    """Return the name of a graph node, given as its name or as the torch.fx node itself."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str) or not name:
        raise ClaimError("claim", f"{value!r} is not a node", "give torch.fx nodes or their names")
    return name


def node_names(value: Iterable[Node | str]) -> tuple[str, ...]:
    """Return the names of several nodes, in the order given, each once."""
    return tuple(dict.fromkeys(map(node_name, frozen_tuple(value))))


def frozen_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return any iterable but text as a tuple: of "add", `tuple` would make three items."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence", "give a list or a tuple")
    return tuple(value)


def one_line(_: object, attribute: Attribute[Any], value: object) -> None:
    """Check a name, which must not break a line, a table or a terminal."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ClaimError("claim", f"{attribute.name} is {value!r}", "write it in one line")
