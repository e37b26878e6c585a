"""Converters and validators that the value classes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import Attribute

from etdev.errors import ClaimError, EtdevError

if TYPE_CHECKING:
    from torch.fx import Node


Kind = TypeVar("Kind", bound=type)


def refusing(error: type[EtdevError], who: str) -> Callable[[Kind], Kind]:
    """Return a decorator of value classes, which raise that error where attrs refuses a value."""

    def decorate(kind: Kind) -> Kind:
        make: Any = kind.__init__  # type: ignore[misc]

        @wraps(make)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                make(self, *args, **kwargs)
            except (TypeError, ValueError, AttributeError) as refusal:
                # attrs' validators put field and value into their first argument.
                raise error(who, str((*refusal.args, "")[0])) from refusal

        kind.__init__ = init  # type: ignore[misc]
        return kind

    return decorate


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
