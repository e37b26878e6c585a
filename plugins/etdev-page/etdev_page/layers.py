"""Layout of a group's children in rows with few crossings, and of the lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, pairwise

from attrs import frozen

# A line across more rows is drawn straight. Otherwise, most of the layout would be bends, of values
# that every layer of a model reads.
_LONGEST = 24
# Most bends: a number for each child, and a few.
_BENDS, _FEW = 3, 1000
# Children without a connection are put in rows of that many.
_ABREAST = 8
_SWEEPS = 4

Pair = tuple[int, int]


@frozen
class Layers:
    """Rows of children and bends, from top to bottom; bends are numbered after the children.

    Args:
        ways: The bends between each pair of children.
    """

    rows: Sequence[Sequence[int]]
    ways: Sequence[Sequence[int]]


def layers(children: int, pairs: Sequence[Pair]) -> Layers:
    """Lay out children that read from each other, each with a smaller number than its readers."""
    rank = _ranks(children, pairs)
    spans = [rank[target] - rank[source] for source, target in pairs]
    longest = next(
        most
        for most in range(_LONGEST, 0, -1)
        if sum(span - 1 for span in spans if span <= most) <= _BENDS * children + _FEW
    )
    connected = {child for pair in pairs for child in pair}
    rows: list[list[int]] = [[] for _ in range(max(rank, default=0) + 1)]
    for child in sorted(connected):
        rows[rank[child]].append(child)
    bends, ways = count(children), list[list[int]]()
    links: list[Pair] = []
    for (source, target), span in zip(pairs, spans, strict=True):
        way = [next(bends) for _ in range(span - 1)] if span <= longest else []
        for row, bend in enumerate(way, rank[source] + 1):
            rows[row].append(bend)
        ways.append(way)
        if span <= longest:
            links += pairwise((source, *way, target))
    _untangle(rows, links)
    alone = [child for child in range(children) if child not in connected]
    first = [alone[start : start + _ABREAST] for start in range(0, len(alone), _ABREAST)]
    return Layers([*first, *filter(None, rows)], ways)


def _ranks(children: int, pairs: Sequence[Pair]) -> list[int]:
    """Return the row of each child: below all that it reads, or right above its first reader."""
    rank, first = [0] * children, dict[int, int]()
    for source, target in sorted(pairs, key=lambda pair: pair[1]):
        rank[target] = max(rank[target], rank[source] + 1)
    for source, target in pairs:
        first[source] = min(rank[target], first.get(source, children))
    for source in first.keys() - {target for _, target in pairs}:
        rank[source] = first[source] - 1
    return rank


def _untangle(rows: Sequence[list[int]], links: Iterable[Pair]) -> None:
    """Sort each row by the mean position of what is above in the row before, then below."""
    above: dict[int, list[int]] = {item: [] for row in rows for item in row}
    below: dict[int, list[int]] = {item: [] for item in above}
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    place = {item: (index + 0.5) / len(row) for row in rows for index, item in enumerate(row)}

    def wanted(item: int) -> float:
        near = beside[item]
        return sum(place[other] for other in near) / len(near) if near else place[item]

    for sweep in range(_SWEEPS):
        beside = below if sweep % 2 else above
        for row in reversed(rows) if sweep % 2 else rows:
            row.sort(key=wanted)
            place.update((item, (index + 0.5) / len(row)) for index, item in enumerate(row))
