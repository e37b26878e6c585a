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
    # Not isinstance, since a bool is an int in Python.
    return _number(lambda value: type(value) is int and value >= least, error, who, cure)


def seconds(error: type[EtdevError], who: str, cure: str, below: float = float("inf")) -> Validator:
    """Return a validator for times above 0 s, with the error that it raises."""
    kinds = (int, float)
    return _number(lambda value: type(value) in kinds and 0 < value < below, error, who, cure)


def _number(fits: Callable[[Any], bool], error: type[EtdevError], who: str, cure: str) -> Validator:
    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if not fits(value):
            raise error(who, f"{attribute.name} is {value!r}", cure)

    return check


def _claimed(fits: Callable[[Any], bool], what: str, cure: str) -> Validator:
    """Return a validator for a field of a claim; its error names the field as `Claim.merge`."""

    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if not fits(value):
            name = f"{type(instance).__name__}.{attribute.name}"
            raise ClaimError("claim", f"{name} {what.format(value)}", cure)

    return check


def each(kind: type) -> Validator:
    """Return a validator for tuples whose members are all of one class."""
    what, cure = f"has {{!r}}, which is not a {kind.__name__}", f"give a list of {kind.__name__}s"
    member = _claimed(lambda item: isinstance(item, kind), what, cure)
    return validators.deep_iterable(member)


# `merge="no"` would be true.
true_or_false = _claimed(lambda value: isinstance(value, bool), "is {!r}", "give True or False")
not_empty = _claimed(bool, "is empty", "leave it out instead")
# Refuses an empty text, and characters that break a line, a table or a terminal.
one_line: Validator = validators.and_(
    validators.instance_of(str),
    _claimed(bool, "is empty", "name one"),
    _claimed(str.isprintable, "is {!r}", "write it in one line"),
)
