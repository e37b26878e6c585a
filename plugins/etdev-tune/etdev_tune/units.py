"""Units of a plan, which are the nodes of one op in one source module, and changes of owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import op_name, upper_bound
from etdev.schema import reasons
from etdev.schema.ledger import Entry
from etdev.schema.pins import PORTABLE, Pin
from etdev.schema.plan import MethodPlan, Plan

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

# Method, module and op of a unit.
Key = tuple[str, str, str]
# Op and sizes, by method and node.
Shapes = Mapping[str, Mapping[str, str]]


@frozen
class Unit:
    """Nodes that move together.

    Args:
        key: Method, path of the module, op of the exported program.
        owner: The plugin that owns most of them, or `portable`.
        wanted: Plugins that wanted one of them.
        shapes: Ops with their sizes, by which equal units are found.
    """

    key: Key
    owner: str
    wanted: frozenset[str]
    shapes: str

    @property
    def structure(self) -> tuple[str, str]:
        """Op and sizes, which equal units in other modules share."""
        return self.key[2], self.shapes

    @property
    def arranges(self) -> bool:
        """Return True if it only rearranges data."""
        parts = self.key[2].split(".")
        return len(parts) > 1 and parts[1] in _ARRANGE


@frozen
class Shift:
    """A change of the owners of some units.

    Args:
        name: Description of the change.
        owners: New owner by unit.
    """

    name: str
    owners: Mapping[Key, str]


def shapes_of(programs: Mapping[str, ExportedProgram]) -> Shapes:
    """Return op and sizes of each node."""
    return {
        name: {
            node.name: f"{op_name(node)} {[_sizes(n) for n in node.all_input_nodes]} {_sizes(node)}"
            for node in program.graph.nodes
            if node.op == "call_function"
        }
        for name, program in programs.items()
    }


def units_of(plan: Plan, shapes: Shapes) -> list[Unit]:
    """Return the units of all methods, in the order of their first nodes."""
    return [unit for method in plan.methods for unit in _of_method(method, shapes[method.method])]


def shifts_of(
    units: Sequence[Unit], owners: Mapping[Key, str], plugins: Sequence[str]
) -> Iterator[Shift]:
    """Yield a change for each structure: units of an op, of an op and sizes, or of equal modules.

    Args:
        units: The units.
        owners: Their present owners.
        plugins: Plugins that may own them.
    """
    seen: set[frozenset[tuple[Key, str]]] = set()
    for words, group in (*_by_op(units), *_by_module(units)):
        if all(unit.arranges for unit in group):
            continue
        for owner in (*plugins, PORTABLE):
            changes = {
                unit.key: owner
                for unit in group
                if owners[unit.key] != owner and owner in (*unit.wanted, PORTABLE)
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


def _of_method(plan: MethodPlan, shapes: Mapping[str, str]) -> Iterator[Unit]:
    groups: dict[Key, list[Entry]] = {}
    for entry in plan.ledger:
        if not entry.foreign and entry.op != "getitem":
            key = plan.method, entry.module, entry.source_op or entry.op
            groups.setdefault(key, []).append(entry)
    for key, entries in groups.items():
        owners = [entry.holder for entry in entries]
        wanted = {
            verdict.plugin
            for entry in entries
            for verdict in entry.verdicts
            if verdict.code in _WANTED or verdict.plugin == entry.owner
        }
        yield Unit(
            key=key,
            owner=max(dict.fromkeys(owners), key=owners.count),
            wanted=frozenset(wanted - {PORTABLE}),
            shapes="; ".join(shapes.get(entry.node, "") for entry in entries),
        )


def _sizes(node: Node) -> list[list[int]]:
    value: Any = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [
        [upper_bound(size) or 1 for size in item.shape]
        for item in values
        if isinstance(item, torch.Tensor)
    ]


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


def _by_op(units: Sequence[Unit]) -> Iterator[tuple[str, list[Unit]]]:
    ops: dict[str, list[Unit]] = {}
    shapes: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        ops.setdefault(unit.key[2], []).append(unit)
        shapes.setdefault(unit.structure, []).append(unit)
    yield from ops.items()
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
    alike: dict[tuple[tuple[str, str], ...], dict[str, list[Unit]]] = {}
    for (_, path), own in modules.items():
        if 1 < len(own) < len(units):
            paths = alike.setdefault(tuple(unit.structure for unit in own), {})
            paths.setdefault(path, []).extend(own)
    for paths in alike.values():
        group = [unit for own in paths.values() for unit in own]
        if len(group) < len(units):
            yield f"{next(iter(paths))}{_more(len(paths) - 1)}", group


def _more(count: int) -> str:
    return f" and {count} like it" if count else ""
