"""Nodes and partitions that two plans have in common, although their names are numbered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from etdev.schema.ledger import Entry, Ledger
from etdev.schema.partition import Partition

# Comparing sequences takes the product of their lengths.
_COMPARABLE = 4_000_000


def names_in_first(first: Ledger, second: Ledger) -> dict[str, str]:
    """Return a name for each node of the second plan: that of the same node in the first plan.

    Two nodes are the same if they have the same op at the same place in their source module. A new
    node keeps its name, or becomes `NAME (new)` where the first plan has another node of that name.
    """
    before, after = _by_module(first), _by_module(second)
    names = {
        entries[new].node: before[module][old].node
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


def _same_ops(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the positions of entries of the same op, in the order of both sequences."""
    old, new = ([entry.op for entry in entries] for entries in (before, after))
    if old == new or len(old) * len(new) > _COMPARABLE:
        yield from ((i, i) for i, (a, b) in enumerate(zip(old, new, strict=False)) if a == b)
        return
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        yield from ((block.a + i, block.b + i) for i in range(block.size))


def matched(
    before: Sequence[Partition], after: Sequence[Partition], names: Mapping[str, str]
) -> Iterator[tuple[Partition | None, Partition | None]]:
    """Yield the pairs of partitions that share most nodes; None stands for a missing counterpart.

    Args:
        before: Partitions of the first plan.
        after: Partitions of the second plan.
        names: Names of the second plan's nodes in the first plan.
    """
    home = {names.get(node, node): i for i, other in enumerate(after) for node in other.nodes}
    shared: Counter[tuple[int, int]] = Counter()
    for index, partition in enumerate(before):
        shared.update((index, home[node]) for node in partition.nodes if node in home)
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for (old, new), _ in shared.most_common():
        if old not in pairs and new not in taken and before[old].plugin == after[new].plugin:
            pairs[old] = new
            taken.add(new)
    for old, partition in enumerate(before):
        yield partition, after[pairs[old]] if old in pairs else None
    yield from ((None, partition) for new, partition in enumerate(after) if new not in taken)
