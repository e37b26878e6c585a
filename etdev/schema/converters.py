"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import Attribute

from etdev.errors import ClaimError, EtdevError

if TYPE_CHECKING:
    from torch.fx import Node

Validator = Callable[[Any, "Attribute[Any]", Any], None]


def node_name(value: Node | str) -> str:
    """Return the name of a graph node, given as its name or as the torch.fx node itself."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str) or not name:
        raise ClaimError("claim", f"{value!r} is not a node", "give torch.fx nodes or their names")
    return name


def node_names(value: Iterable[Node | str]) -> tuple[str, ...]:
    """Return the names of several nodes, in the order given, each once.

    A bare `tuple` would take the string "add" for three nodes.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence of nodes", "give a list of nodes")
    return tuple(dict.fromkeys(node_name(item) for item in value))


def frozen_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return any iterable but text as a tuple."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence", "give a list or a tuple")
    return tuple(value)


def text_tuple(value: Iterable[str]) -> tuple[str, ...]:
    """Return several texts as a tuple; type checkers take a field's type from this signature."""
    return frozen_tuple(value)


def count(least: int, error: type[EtdevError], who: str, *, optional: bool = False) -> Validator:
    """Return a validator for whole numbers.

    Args:
        least: The smallest valid number.
        error: Class of the error.
        who: Name of the value in messages.
        optional: Accept None.
    """

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        # bool is an int in Python.
        if not (optional and value is None) and (type(value) is not int or value < least):
            what = f"{attribute.name} is {value!r}"
            raise error(who, what, f"it must be a whole number of at least {least}")

    return check


def seconds(
    error: type[EtdevError],
    who: str,
    cure: str,
    *,
    below: float = float("inf"),
    optional: bool = False,
) -> Validator:
    """Return a validator for times above 0 s.

    Args:
        error: Class of the error.
        who: Name of the value in messages.
        cure: End of the message.
        below: The first time that is too long.
        optional: Accept None.
    """

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if not (optional and value is None) and not (
            type(value) in (int, float) and 0 < value < below
        ):
            raise error(who, f"{attribute.name} is {value!r}", cure)

    return check


def _name(instance: object, attribute: Attribute[Any]) -> str:
    """Return a field as a user writes it: `Claim.groups`."""
    return f"{type(instance).__name__}.{attribute.name}"


def each(kind: type) -> Validator:
    """Return a validator for tuples whose members are all of one class."""

    def check(instance: Any, attribute: Attribute[Any], value: Iterable[Any]) -> None:
        for item in value:
            if not isinstance(item, kind):
                name = _name(instance, attribute)
                what = f"{name} has {item!r}, which is not a {kind.__name__}"
                raise ClaimError("claim", what, f"give a list of {kind.__name__}s")

    return check


def true_or_false(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    """Refuse everything but a bool, since `merge="no"` would be true."""
    if not isinstance(value, bool):
        what = f"{_name(instance, attribute)} is {value!r}"
        raise ClaimError("claim", what, "give True or False")


def not_empty(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    """Refuse an empty text or collection."""
    if not value:
        cure = "name one" if isinstance(value, str) else "leave it out instead"
        raise ClaimError("claim", f"{_name(instance, attribute)} is empty", cure)


def one_line(instance: Any, attribute: Attribute[Any], value: str) -> None:
    """Refuse characters that break a line, a table or a terminal."""
    if not value.isprintable():
        what = f"{_name(instance, attribute)} is {value!r}"
        raise ClaimError("claim", what, "write it in one line")
