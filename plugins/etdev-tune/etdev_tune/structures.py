"""Changes that move all units of a structure to another owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from etdev.schema.pins import PORTABLE, Pin
from etdev_tune.units import Key, Unit, choices

# Ops that only rearrange data, and are not moved alone.
_ARRANGE = {
    *("_to_copy", "_unsafe_view", "alias", "cat", "chunk", "clone", "contiguous", "detach"),
    *("dropout", "expand", "expand_copy", "flatten", "lift_fresh_copy", "narrow", "numpy_T"),
    *("permute", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "to"),
    *("transpose", "unbind", "unflatten", "unsqueeze", "view", "view_copy"),
}


@frozen
class Shift:
    """A change of the owners of some units.

    Args:
        name: Description of the change.
        owners: New owner by unit.
    """

    name: str
    owners: Mapping[Key, str]


def shifts_of(units: Sequence[Unit], plugins: Sequence[str]) -> Iterator[Shift]:
    """Yield a change for each structure: units of an op, of an op and shape, or of equal modules.

    Args:
        units: Units with their present owners.
        plugins: Plugins that may own them.
    """
    seen: set[frozenset[tuple[Key, str]]] = set()
    for words, group in (*_by_op(units), *_by_module(units)):
        if all(_arranges(unit) for unit in group):
            continue
        for owner in (*plugins, PORTABLE):
            changes = {
                unit.key: owner
                for unit in group
                if unit.owner != owner and owner in choices(unit, plugins)
            }
            known = frozenset(changes.items())
            if changes and known not in seen:
                seen.add(known)
                yield Shift(f"{words} to {owner}", changes)


def pins_of(units: Sequence[Unit], owners: Mapping[Key, str]) -> tuple[Pin, ...]:
    """Return pins that change owners of units, and no others.

    Args:
        units: Units with the owners in a plan.
        owners: The wanted owners.
    """
    groups: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        groups.setdefault((unit.key[0], unit.key[2]), []).append(unit)
    pins = [pin for group in groups.values() for pin in _pins(group, owners)]
    # The first pin that matches counts, and one of a module also matches the modules within.
    return tuple(sorted(pins, key=lambda pin: -(pin.module or "").count(".") - bool(pin.module)))


def _pins(group: Sequence[Unit], owners: Mapping[Key, str]) -> list[Pin]:
    """Return pins for the units of one op in one method."""
    wanted = {unit.key: owners.get(unit.key, unit.owner) for unit in group}
    if all(wanted[unit.key] == unit.owner for unit in group):
        return []
    method, _module, op = group[0].key
    if len(set(wanted.values())) == 1:
        return [Pin(wanted[group[0].key], op=op, method=method)]
    # For each of them, since the pin of a module would move units that stay.
    return [
        Pin(wanted[unit.key], module=unit.key[1] or None, op=op, method=method) for unit in group
    ]


def _arranges(unit: Unit) -> bool:
    """Return True if a unit only rearranges data."""
    parts = unit.key[2].split(".")
    return len(parts) > 1 and parts[1] in _ARRANGE


def _by_op(units: Sequence[Unit]) -> Iterator[tuple[str, list[Unit]]]:
    ops: dict[str, list[Unit]] = {}
    shapes: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        ops.setdefault(unit.key[2], []).append(unit)
        shapes.setdefault(unit.structure, []).append(unit)
    yield from ((op, group) for op, group in ops.items())
    for (op, _), group in shapes.items():
        if len(group) < len(ops[op]):
            yield f"{op} of {group[0].key[1] or 'the model'}{_more(len(group) - 1)}", group


def _by_module(units: Sequence[Unit]) -> Iterator[tuple[str, list[Unit]]]:
    """Yield the units of all modules that have the same units."""
    modules: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        steps = unit.key[1].split(".") if unit.key[1] else []
        for depth in range(1, len(steps) + 1):
            modules.setdefault((unit.key[0], ".".join(steps[:depth])), []).append(unit)
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    members: dict[str, list[Unit]] = {}
    for (_, path), group in modules.items():
        if 1 < len(group) < len(units):
            alike.setdefault(tuple(unit.structure for unit in group), []).append(path)
            members.setdefault(path, []).extend(group)
    for paths in alike.values():
        group = [unit for path in dict.fromkeys(paths) for unit in members[path]]
        if len(group) < len(units):
            yield f"{paths[0]}{_more(len(paths) - 1)}", group


def _more(count: int) -> str:
    return f" and {count} like it" if count else ""
