"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import Attribute, validators

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
    """Return the names of several nodes, in the order given, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence of nodes", "give a list of nodes")
    return tuple(dict.fromkeys(node_name(item) for item in value))


def frozen_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return any iterable but text as a tuple: of "add", `tuple` would make three items."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ClaimError("claim", f"{value!r} is not a sequence", "give a list or a tuple")
    return tuple(value)


def count(least: int, error: type[EtdevError], who: str) -> Validator:
    """Return a validator for whole numbers, with the error that it raises."""
    cure = f"it must be a whole number of at least {least}"
    return _number((int,), lambda number: bool(number >= least), error, who, cure)


def seconds(error: type[EtdevError], who: str, cure: str, below: float = float("inf")) -> Validator:
    """Return a validator for times above 0 s, with the error that it raises."""
    return _number((int, float), lambda number: 0 < number < below, error, who, cure)


def _number(
    kinds: tuple[type, ...],
    fits: Callable[[Any], bool],
    error: type[EtdevError],
    who: str,
    cure: str,
) -> Validator:
    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        # Not isinstance, since a bool is an int in Python.
        if type(value) not in kinds or not fits(value):
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


def _check_line(instance: Any, attribute: Attribute[Any], value: str) -> None:
    if not value.isprintable():
        what = f"{_name(instance, attribute)} is {value!r}"
        raise ClaimError("claim", what, "write it in one line")


# Refuses an empty text, and characters that break a line, a table or a terminal.
one_line = validators.and_(validators.instance_of(str), not_empty, _check_line)
