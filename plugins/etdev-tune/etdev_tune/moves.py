"""Changes of a candidate: other options of a plugin, and parts of a model for another owner."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from etdev import Pin, Plan
from etdev.app import Plugin
from etdev.schema import reasons
from etdev.schema.pins import PORTABLE
from etdev_tune.candidate import Candidate

# Verdicts on nodes that a plugin wanted, and may get where they are pinned to it.
_WANTED = {
    reason.code
    for reason in (
        *(reasons.CLAIMED, reasons.LOST, reasons.LOST_GROUP, reasons.CONVEXITY),
        *(reasons.MIN_NODES, reasons.MAX_PARTITIONS),
    )
}
# Ops that only rearrange data, and are not moved alone.
_ARRANGE = {
    *("_to_copy", "_unsafe_view", "alias", "cat", "chunk", "clone", "contiguous", "detach"),
    *("dropout", "expand", "expand_copy", "flatten", "lift_fresh_copy", "narrow", "numpy_T"),
    *("permute", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "to"),
    *("transpose", "unbind", "unflatten", "unsqueeze", "view", "view_copy"),
}

# Method, module and op of some nodes.
Key = tuple[str, str, str]


def option_moves(
    candidate: Candidate, plugin: Plugin, fixed: Collection[str]
) -> Iterator[Candidate]:
    """Yield candidates that differ in one option of a plugin, which the user has not fixed."""
    changed = candidate.options.get(plugin.name, {})
    for option, values in choices_of(plugin).items():
        now = changed.get(option, getattr(plugin.implementation, option))
        for value in values if option not in fixed else ():
            if value != now:
                yield candidate.with_option(plugin.name, option, value)


def choices_of(plugin: Plugin) -> dict[str, tuple[Any, ...]]:
    """Return the values of each option of a plugin that has a known, small set of them.

    These are flags, and fields of an attrs class that `attrs.validators.in_` checks. If it checks
    the members of a list, the values are the empty list and those of one member. A plugin that the
    user gave as an object has no options.
    """
    kind = type(plugin.implementation)
    if plugin.made is None or not attrs.has(kind):
        return {}
    fields = [field for field in attrs.fields(kind) if field.init and field.alias == field.name]
    choices = {field.name: _values(field) for field in fields}
    return {name: values for name, values in choices.items() if len(values) > 1}


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


@frozen
class Move:
    """Parts that get another owner, a plugin or `portable`, by pins."""

    name: str
    owner: str
    pins: tuple[Pin, ...]


def moves_of(asked: Plan, best: Plan, plugins: Sequence[str]) -> Iterator[Move]:
    """Yield a move for each op, each group of modules of one name, and each op in one module.

    Args:
        asked: A plan for which all plugins were asked, to know what they want.
        best: The plan whose parts move.
        plugins: Plugins that may own them.
    """
    wanted = _wanted(asked)
    owners = _owners(best)
    seen: set[tuple[str, frozenset[Key]]] = set()
    for words, keys in _groups(list(owners)):
        if all(op.split(".")[1:2] and op.split(".")[1] in _ARRANGE for _, _, op in keys):
            continue
        for owner in (*plugins, PORTABLE):
            moved = [
                key
                for key in keys
                if owners[key] != {owner} and owner in (*wanted.get(key, ()), PORTABLE)
            ]
            if moved and (owner, frozenset(moved)) not in seen:
                seen.add((owner, frozenset(moved)))
                pins = dict.fromkeys(_pin(owner, words, key) for key in moved)
                yield Move(f"{words} to {owner}", owner, tuple(pins))


def _owners(plan: Plan) -> dict[Key, set[str]]:
    owners: dict[Key, set[str]] = {}
    for method in plan.methods:
        for entry in method.ledger:
            if not entry.foreign and entry.op != "getitem":
                key = method.method, entry.module, entry.source_op or entry.op
                owners.setdefault(key, set()).add(entry.holder)
    return owners


def _wanted(plan: Plan) -> Mapping[Key, set[str]]:
    wanted: dict[Key, set[str]] = {}
    for method in plan.methods:
        for entry in method.ledger:
            key = method.method, entry.module, entry.source_op or entry.op
            wanted.setdefault(key, set()).update(
                verdict.plugin
                for verdict in entry.verdicts
                if verdict.code in _WANTED or verdict.plugin == entry.owner
            )
    return wanted


def _groups(keys: Sequence[Key]) -> Iterator[tuple[str, list[Key]]]:
    """Yield the ops, the modules, and the ops of one module, each with its name."""
    groups: dict[str, list[Key]] = {}
    for key in keys:
        groups.setdefault(key[2], []).append(key)
    for key in keys:
        steps = _pattern(key[1]).split(".")
        for depth in range(1, len(steps) + 1):
            if any(step not in ("", "*") for step in steps[:depth]):
                groups.setdefault(".".join(steps[:depth]), []).append(key)
    for key in keys:
        if key[1]:
            groups[f"{key[2]} of {key[1]}"] = [key]
    yield from groups.items()


def _pin(owner: str, words: str, key: Key) -> Pin:
    """Return the pin that moves a part as a member of the group of that name."""
    method, module, op = key
    if words == op:
        return Pin(owner, op=op, method=method)
    if words == f"{op} of {module}":
        return Pin(owner, module=module, op=op, method=method)
    # A list of modules has a name and no call of its own, so no node is in it.
    inside = words if _pattern(module) == words else f"{words}.*"
    return Pin(owner, module=inside, op=op, method=method)


def _pattern(module: str) -> str:
    """Return the path of a module with `*` for numbers, as equal layers share it."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)
