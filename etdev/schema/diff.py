"""Comparison of two plans, node by node and partition by partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import field, frozen

from etdev.schema.alignment import matched, names_in_first
from etdev.schema.difference import Difference, Gained, ModuleMove, Move
from etdev.schema.figures import changed, figures
from etdev.schema.ledger import Entry
from etdev.schema.partition import Partition

if TYPE_CHECKING:
    from etdev.schema.plan import MethodPlan, Plan


def diff(first: Plan, second: Plan, before: str = "before", after: str = "after") -> Difference:
    """Compare two plans.

    Args:
        first: The old plan.
        second: The new plan.
        before: Name of the old plan.
        after: Name of the new plan.
    """
    nodes: list[Move] = []
    modules: list[ModuleMove] = []
    parts: list[Gained] = []
    for name in dict.fromkeys(m.method for plan in (first, second) for m in plan.methods):
        old, new = _sides(first, second, name)
        moves = list(_moves(old, new))
        nodes += moves
        for module in dict.fromkeys(move.module for move in moves if move.module):
            modules.append(ModuleMove(name, module, old.homes_in(module), new.homes_in(module)))
        parts += _parts(old, new)
    parts += _plugins(first, second)
    numbers = changed(figures(first), figures(second))
    return Difference(before, after, tuple(nodes), tuple(modules), tuple(parts), numbers)


@frozen(slots=False)
class _Side:
    """One method of one plan, with its nodes named as in the first plan.

    Args:
        name: Name of the method.
        plan: Its plan; None if the plan lacks the method.
        names: Names of its nodes in the first plan, where they differ.
    """

    name: str
    plan: MethodPlan | None
    names: Mapping[str, str] = field(factory=dict)

    @property
    def partitions(self) -> Sequence[Partition]:
        return self.plan.partitions if self.plan else ()

    @cached_property
    def nodes(self) -> dict[str, tuple[Entry, str]]:
        """Each node with its owner and device."""
        devices = {partition.name: str(partition.device) for partition in self.partitions}
        return {
            self.names.get(entry.node, entry.node): (
                entry,
                f"{entry.holder} on {devices.get(entry.partition or '', 'cpu')}",
            )
            for entry in (self.plan.ledger if self.plan else ())
        }

    @cached_property
    def _modules(self) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {}
        for entry, home in self.nodes.values():
            counts.setdefault(entry.module, Counter())[home] += 1
        return counts

    def homes_in(self, module: str) -> dict[str, int]:
        """Return the number of a module's nodes by owner and device."""
        return dict(self._modules.get(module, {}))

    def copies(self) -> Counter[str]:
        """Return the copies between devices, in words."""
        texts: Counter[str] = Counter()
        for copy in self.plan.copies if self.plan else ():
            name = self.names.get(copy.tensor.name, copy.tensor.name)
            size = "" if copy.tensor.size_bytes is None else f", {copy.tensor.size_bytes} bytes"
            texts[f"{name} from {copy.source} to {copy.target}{size}"] += 1
        return texts

    def content(self, partition: Partition) -> tuple[object, ...]:
        """Return everything that makes a partition's delegate, except for the weights' values."""
        nodes = [self.names.get(node, node) for node in partition.nodes]
        specs = (partition.compiler, partition.compile_specs)
        return (partition.backend_id, partition.device, nodes, specs, partition.constants)

    def described(self, partition: Partition | None) -> str | None:
        """Return a partition in words; None for None."""
        if partition is None:
            return None
        first, last = (self.names.get(partition.nodes[i], partition.nodes[i]) for i in (0, -1))
        specs = " ".join(f"{spec.key}={spec.value[:20]!r}" for spec in partition.compile_specs)
        inside = sum(constant.size_bytes for constant in partition.constants if constant.inside)
        return (
            f"{partition.plugin}: {partition.backend_id} on {partition.device}, "
            f"{len(partition.nodes)} nodes from {first} to {last}, "
            f"{inside} bytes of weights{f', {specs}' if specs else ''}"
        )


def _sides(first: Plan, second: Plan, name: str) -> tuple[_Side, _Side]:
    before, after = (
        next((method for method in plan.methods if method.method == name), None)
        for plan in (first, second)
    )
    names = names_in_first(before.ledger, after.ledger) if before and after else {}
    return _Side(name, before), _Side(name, after, names)


def _moves(first: _Side, second: _Side) -> Iterator[Move]:
    for node in dict.fromkeys([*first.nodes, *second.nodes]):
        old, was = first.nodes.get(node, (None, None))
        new, now = second.nodes.get(node, (None, None))
        entry = new or old
        if entry and (was != now or (old and new and old.op != new.op)):
            yield Move(first.name, node, entry.op, entry.module, was, now)


def _parts(first: _Side, second: _Side) -> Iterator[Gained]:
    if first.plan is None or second.plan is None:
        was, now = (f"method {s.name}" if s.plan else None for s in (first, second))
        yield Gained("method", first.name, was, now)
    for old, new in matched(first.partitions, second.partitions, second.names):
        if old is None or new is None or first.content(old) != second.content(new):
            yield Gained("partition", first.name, first.described(old), second.described(new))
    lost, won = first.copies() - second.copies(), second.copies() - first.copies()
    yield from (Gained("copy", first.name, text, None) for text in lost.elements())
    yield from (Gained("copy", first.name, None, text) for text in won.elements())


def _plugins(first: Plan, second: Plan) -> Iterator[Gained]:
    before, after = (
        ", ".join(f"{name} {version}".strip() for name, version in plan.plugins)
        for plan in (first, second)
    )
    if before != after:
        yield Gained("plugins", "", before or None, after or None)
