"""Options of plugins that have few values, so that each value can be tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import attrs

from etdev.registry.plugin import Plugin
from etdev_tune.candidate import Candidate


def choices_of(plugin: Plugin) -> dict[str, tuple[Any, ...]]:
    """Return the values of each option of a plugin that has a known, small set of them.

    These are flags, and fields of an attrs class that `attrs.validators.in_` checks. If it checks
    the members of a list, the values are the empty list and those of one member.

    Args:
        plugin: A plugin that was made with the registry's options; for an object that the user
            gave, there are none.
    """
    kind = type(plugin.implementation)
    if plugin.made is None or not attrs.has(kind):
        return {}
    fields = [field for field in attrs.fields(kind) if field.init and field.alias == field.name]
    choices = {field.name: _values(field) for field in fields}
    return {name: values for name, values in choices.items() if len(values) > 1}


def moves_of(
    candidate: Candidate, plugin: Plugin, fixed: Collection[str]
) -> Iterator[tuple[str, Candidate]]:
    """Yield candidates that differ in one option of a plugin, each with the change in words.

    Args:
        candidate: The candidate to change.
        plugin: One of its plugins.
        fixed: Options that the user set, which aren't changed.
    """
    changed = candidate.options.get(plugin.name, {})
    for option, values in choices_of(plugin).items():
        if option in fixed:
            continue
        now = changed.get(option, getattr(plugin.implementation, option))
        for value in values:
            if value != now:
                move = candidate.with_option(plugin.name, option, value)
                yield move.name.rpartition("; ")[2], move


def _values(field: Any) -> tuple[Any, ...]:
    if isinstance(field.default, bool):
        return (False, True)
    # The validator of `in_` has no public class; its attribute `options` has the values.
    allowed = getattr(field.validator, "options", None)
    if isinstance(allowed, (tuple, list)):
        return tuple(allowed)
    members = getattr(getattr(field.validator, "member_validator", None), "options", None)
    if field.default != () or not isinstance(members, (tuple, list)):
        return ()
    return ((), *((member,) for member in members))
