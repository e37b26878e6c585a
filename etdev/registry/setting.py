"""A setting: something of this process that no hook may leave changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

# How many names a message has.
_NAMES = 8


@frozen
class Setting:
    """Something global that the caller of a lowering relies on; its name tells it from others.

    Args:
        name: What users call it.
        read: Its value, of a kind that `==` compares.
        write: Puts a value back.
        imported: A library may change it when it is imported.
        slow: Reading it takes longer than many a hook.
        long: Its values are too long for a message.
        is_quiet: Whether a change is so usual for an import that nobody has to know, from the
            values before and after.
        hides: A change that is not quiet hides warnings, so that it is put back whoever made it.
    """

    name: str
    read: Callable[[], Any] = field(eq=False)
    write: Callable[[Any], object] = field(eq=False)
    imported: bool = field(default=False, eq=False)
    slow: bool = field(default=False, eq=False)
    long: bool = field(default=False, eq=False)
    is_quiet: Callable[[Any, Any], bool] = field(default=lambda before, after: False, eq=False)
    hides: bool = field(default=False, eq=False)

    def difference(self, before: Any, after: Any) -> str:
        """What changed, for a message."""
        if isinstance(before, dict):
            keys = before.keys() | after.keys()
            names = sorted(key for key in keys if before.get(key) != after.get(key))
            more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            return f"{self.name} ({', '.join(names[:_NAMES])}{more})"
        return self.name if self.long else f"{self.name} from {before} to {after}"


def attribute(name: str, place: Any, attribute: str, **kind: Any) -> Setting:
    """The setting that is an attribute of a module or of another object."""
    return Setting(
        name,
        lambda: getattr(place, attribute),
        lambda value: setattr(place, attribute, value),
        **kind,
    )
