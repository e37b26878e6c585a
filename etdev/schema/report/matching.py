"""Matching: which partition of a plan is which of another; their names are numbers and change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from etdev.schema.partition import Partition


def matched(
    before: Sequence[Partition], after: Sequence[Partition]
) -> Iterator[tuple[Partition | None, Partition | None]]:
    """Partitions of two plans in pairs that share most nodes; None for one that has no other."""
    home = {node: index for index, partition in enumerate(after) for node in partition.nodes}
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


def same(first: Partition, second: Partition) -> bool:
    """Whether two partitions become the same delegate, apart from the values of weights."""
    return _content(first) == _content(second)


def _content(partition: Partition) -> tuple[object, ...]:
    """What two partitions that are the same have in common; not their names."""
    specs = (partition.compiler, partition.compile_specs)
    return (partition.backend_id, partition.device, partition.nodes, specs, partition.constants)


def described(partition: Partition | None) -> str | None:
    """A partition in words; None if there is none."""
    if partition is None:
        return None
    specs = " ".join(f"{spec.key}={spec.value[:20]!r}" for spec in partition.compile_specs)
    inside = sum(constant.size_bytes for constant in partition.constants if constant.inside)
    return (
        f"{partition.plugin}: {partition.backend_id} on {partition.device}, "
        f"{len(partition.nodes)} nodes from {partition.nodes[0]} to {partition.nodes[-1]}, "
        f"{inside} bytes of weights{f', {specs}' if specs else ''}"
    )
