"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attrs import Attribute

from etdev.errors import ClaimError

if TYPE_CHECKING:
    from torch.fx import Node


def node_name(value: Node | str) -> str:
    """The name of a graph node, given as its name or as the torch.fx node itself."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str) or not name:
        raise ClaimError("claim", f"{value!r} is not a node", "give torch.fx nodes or their names")
    return name


def node_names(value: Iterable[Node | str]) -> tuple[str, ...]:
    """Names of several nodes, in the order given, each once.

    Named, since bare `tuple` would take the string "add" for three nodes.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence of nodes", "give a list of nodes")
    return tuple(dict.fromkeys(node_name(item) for item in value))


def frozen_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Any iterable but text, as a tuple."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence", "give a list or a tuple")
    return tuple(value)


def _name(instance: object, attribute: Attribute[Any]) -> str:
    """A field as a user writes it: `Claim.groups`."""
    return f"{type(instance).__name__}.{attribute.name}"


def each(kind: type) -> Any:
    """Validator: a tuple whose members are all of one class."""

    def check(instance: object, attribute: Attribute[Any], value: Iterable[Any]) -> None:
        for item in value:
            if not isinstance(item, kind):
                name = _name(instance, attribute)
                what = f"{name} has {item!r}, which is not a {kind.__name__}"
                raise ClaimError("claim", what, f"give a list of {kind.__name__}s")

    return check


def true_or_false(instance: object, attribute: Attribute[Any], value: Any) -> None:
    """Validator: a bool, since `merge="no"` would be true."""
    if not isinstance(value, bool):
        what = f"{_name(instance, attribute)} is {value!r}"
        raise ClaimError("claim", what, "give True or False")


def not_empty(instance: object, attribute: Attribute[Any], value: Any) -> None:
    """Validator: at least one item or character."""
    if not value:
        cure = "name one" if isinstance(value, str) else "leave it out instead"
        raise ClaimError("claim", f"{_name(instance, attribute)} is empty", cure)


def one_line(instance: object, attribute: Attribute[Any], value: str) -> None:
    """Validator: nothing that breaks a line, a table or a terminal."""
    if not value.isprintable():
        what = f"{_name(instance, attribute)} is {value!r}"
        raise ClaimError("claim", what, "write it in one line")


def text_tuple(value: Iterable[str]) -> tuple[str, ...]:
    """Texts as a tuple; its own function, so that type checkers know what it takes."""
    return frozen_tuple(value)
