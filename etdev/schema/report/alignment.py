"""Alignment: which node of a plan is which of another; names are numbered, and numbers shift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from attrs import evolve

from etdev.schema.ledger import Entry, Ledger
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import Copy

# Comparing sequences takes the product of their lengths.
_COMPARABLE = 4_000_000


def aligned(first: MethodPlan, second: MethodPlan) -> MethodPlan:
    """The second plan with the first one's names of the nodes that both have.

    A node is the same as another if it is the same op at the same place among those of its source
    module. What only the second has and is called as something else in the first is `NAME (new)`.
    """
    names = dict(_pairs(first.ledger, second.ledger))
    if all(name == other for other, name in names.items()):
        return second
    known = {entry.node for entry in first.ledger}
    for entry in second.ledger:
        new = f"{entry.node} (new)" if entry.node in known else entry.node
        names.setdefault(entry.node, new)
    return evolve(
        second,
        ledger=Ledger(tuple(_entry(entry, names) for entry in second.ledger)),
        partitions=tuple(_partition(partition, names) for partition in second.partitions),
        copies=tuple(_copy(copy, names) for copy in second.copies),
    )


def _pairs(first: Ledger, second: Ledger) -> Iterator[tuple[str, str]]:
    """Names of the second with those of the same nodes in the first."""
    before, after = _modules(first), _modules(second)
    for module, entries in after.items():
        others = before.get(module, [])
        for old, new in _same(others, entries):
            yield entries[new].node, others[old].node


def _modules(ledger: Ledger) -> dict[str, list[Entry]]:
    modules: dict[str, list[Entry]] = {}
    for entry in ledger:
        modules.setdefault(entry.module, []).append(entry)
    return modules


def _same(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Positions of entries of the same op, in the order of both."""
    old, new = ([entry.op for entry in entries] for entries in (before, after))
    if old == new or len(old) * len(new) > _COMPARABLE:
        yield from ((i, i) for i, (a, b) in enumerate(zip(old, new, strict=False)) if a == b)
        return
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        yield from ((block.a + i, block.b + i) for i in range(block.size))


def _entry(entry: Entry, names: dict[str, str]) -> Entry:
    return evolve(entry, node=names[entry.node])


def _partition(partition: Partition, names: dict[str, str]) -> Partition:
    return evolve(partition, nodes=tuple(names.get(node, node) for node in partition.nodes))


def _copy(copy: Copy, names: dict[str, str]) -> Copy:
    name = names.get(copy.tensor.name, copy.tensor.name)
    return evolve(copy, tensor=evolve(copy.tensor, name=name))
