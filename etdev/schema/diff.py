"""Comparison of two plans, node by node and partition by partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import frozen

from etdev.schema.difference import Difference, Gained, ModuleMove, Move, changed, outlined
from etdev.schema.ledger import Entry, Ledger
from etdev.schema.partition import Partition

if TYPE_CHECKING:
    from etdev.schema.plan import MethodPlan, Plan

# Comparing sequences takes the product of their lengths.
_COMPARABLE = 4_000_000


def diff(first: Plan, second: Plan) -> Difference:
    """Compare two plans, the old one and the new one."""
    nodes: list[Move] = []
    modules: list[ModuleMove] = []
    parts: list[Gained] = []
    methods = [{method.method: method for method in plan.methods} for plan in (first, second)]
    for name in dict.fromkeys([*methods[0], *methods[1]]):
        before, after = (plans.get(name) for plans in methods)
        names = _names_in_first(before.ledger, after.ledger) if before and after else {}
        old, new = _Side(before, {}), _Side(after, names)
        moves = list(_moves(name, old, new))
        nodes += moves
        for module in dict.fromkeys(move.module for move in moves if move.module):
            modules.append(ModuleMove(name, module, old.owners_in(module), new.owners_in(module)))
        parts += _parts(name, old, new)
    was, now = (", ".join(" ".join(p).strip() for p in plan.plugins) for plan in (first, second))
    if was != now:
        parts.append(Gained("plugins", "", was or None, now or None))
    numbers = changed(_figures(first), _figures(second))
    return Difference("before", "after", tuple(nodes), tuple(modules), tuple(parts), numbers)


def outline(plan: Plan) -> dict[str, int]:
    """Return the figures that a plan has in common with its .pte."""
    numbers: dict[str, int] = {}
    for method in plan.methods:
        up = sum(not copy.target.is_cpu for copy in method.copies)
        delegates = ((p.backend_id, str(p.device)) for p in method.partitions)
        numbers |= outlined(method.method, delegates, up, len(method.copies) - up)
    return numbers


def _figures(plan: Plan) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for method in plan.methods:
        name = method.method
        for owner, count in sorted(method.ledger.owned().items()):
            numbers[f"{name}: nodes of {owner}"] = count
        copied = sum(copy.tensor.size_bytes or 0 for copy in method.copies)
        numbers[f"{name}: bytes copied at every run"] = copied
        inside = [c.size_bytes for p in method.partitions for c in p.constants if c.inside]
        numbers[f"{name}: bytes of weights inside delegates"] = sum(inside)
        numbers[f"{name}: bytes of weights stored again"] = method.copied_bytes
    return numbers | outline(plan)


@frozen(slots=False)
class _Side:
    """One method of one plan, if it has it, and its nodes' names in the first plan."""

    plan: MethodPlan | None
    names: Mapping[str, str]

    def name(self, node: str) -> str:
        return self.names.get(node, node)

    @property
    def partitions(self) -> Sequence[Partition]:
        return self.plan.partitions if self.plan else ()

    @cached_property
    def nodes(self) -> dict[str, tuple[Entry, str]]:
        """Each node with its owner and device."""
        devices = {partition.name: str(partition.device) for partition in self.partitions}
        return {
            self.name(e.node): (e, f"{e.holder} on {devices.get(e.partition or '', 'cpu')}")
            for e in (self.plan.ledger if self.plan else ())
        }

    @cached_property
    def _modules(self) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {}
        for entry, owner in self.nodes.values():
            counts.setdefault(entry.module, Counter())[owner] += 1
        return counts

    def owners_in(self, module: str) -> dict[str, int]:
        """Return the number of a module's nodes by owner and device."""
        return dict(self._modules.get(module, {}))

    def copies(self) -> Counter[str]:
        """Return the copies between devices, in words."""
        texts: Counter[str] = Counter()
        for copy in self.plan.copies if self.plan else ():
            size = "" if copy.tensor.size_bytes is None else f", {copy.tensor.size_bytes} bytes"
            name = self.name(copy.tensor.name)
            texts[f"{name} from {copy.source} to {copy.target}{size}"] += 1
        return texts

    def content(self, partition: Partition) -> tuple[object, ...]:
        """Return everything that makes a partition's delegate, except for the weights' values."""
        nodes = [self.name(node) for node in partition.nodes]
        specs = (partition.compiler, partition.compile_specs)
        return (partition.backend_id, partition.device, nodes, specs, partition.constants)

    def described(self, partition: Partition | None) -> str | None:
        """Return a partition in words; None for None."""
        if partition is None:
            return None
        specs = " ".join(f"{spec.key}={spec.value[:20]!r}" for spec in partition.compile_specs)
        inside = sum(constant.size_bytes for constant in partition.constants if constant.inside)
        return (
            f"{partition.plugin}: {partition.backend_id} on {partition.device}, "
            f"{len(partition.nodes)} nodes from {self.name(partition.nodes[0])} to "
            f"{self.name(partition.nodes[-1])}, "
            f"{inside} bytes of weights{f', {specs}' if specs else ''}"
        )


def _moves(method: str, first: _Side, second: _Side) -> Iterator[Move]:
    for node in dict.fromkeys([*first.nodes, *second.nodes]):
        old, was = first.nodes.get(node, (None, None))
        new, now = second.nodes.get(node, (None, None))
        entry = new or old
        if entry and (was != now or (old and new and old.op != new.op)):
            yield Move(method, node, entry.op, entry.module, was, now)


def _parts(method: str, first: _Side, second: _Side) -> Iterator[Gained]:
    if first.plan is None or second.plan is None:
        was, now = (f"method {method}" if side.plan else None for side in (first, second))
        yield Gained("method", method, was, now)
    for old, new in _matched(first, second):
        if old is None or new is None or first.content(old) != second.content(new):
            yield Gained("partition", method, first.described(old), second.described(new))
    lost, won = first.copies() - second.copies(), second.copies() - first.copies()
    yield from (Gained("copy", method, text, None) for text in lost.elements())
    yield from (Gained("copy", method, None, text) for text in won.elements())


def _matched(first: _Side, second: _Side) -> Iterator[tuple[Partition | None, Partition | None]]:
    """Yield each partition with the one that shares most nodes with it; None is a missing one."""
    names = {second.name(node): other.name for other in second.partitions for node in other.nodes}
    left = {other.name: other for other in second.partitions}
    for old in first.partitions:
        shared = Counter(names[node] for node in old.nodes if node in names).most_common()
        same = (name for name, _ in shared if name in left and left[name].plugin == old.plugin)
        yield old, left.pop(next(same, ""), None)
    yield from ((None, new) for new in left.values())


def _names_in_first(first: Ledger, second: Ledger) -> dict[str, str]:
    """Return a name for each node of the second plan: that of the same node in the first plan.

    Two nodes are the same if they have the same op at the same place in their source module. A new
    node keeps its name, or becomes `NAME (new)` where the first plan has another node of that name.
    """
    before, after = _by_module(first), _by_module(second)
    names = {
        new.node: old.node
        for module, entries in after.items()
        for old, new in _same_ops(before.get(module, []), entries)
    }
    shifted = any(name != other for name, other in names.items())
    taken = {entry.node for entry in first} if shifted else set()
    for entry in second:
        names.setdefault(entry.node, entry.node + " (new)" * (entry.node in taken))
    return names


def _by_module(ledger: Ledger) -> dict[str, list[Entry]]:
    modules: dict[str, list[Entry]] = {}
    for entry in ledger:
        modules.setdefault(entry.module, []).append(entry)
    return modules


def _same_ops(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Yield the entries of the same op, in the order of both sequences."""
    old, new = ([entry.op for entry in entries] for entries in (before, after))
    if old == new or len(old) * len(new) > _COMPARABLE:
        yield from (pair for pair in zip(before, after, strict=False) if pair[0].op == pair[1].op)
        return
    for a, b, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        yield from zip(before[a : a + size], after[b : b + size], strict=True)
