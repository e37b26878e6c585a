"""Layout of a group's children in rows with few crossings, and of the lines between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count, pairwise

from attrs import frozen

# A line across more rows is a stub: nobody can follow it from one end to the other.
_LONGEST = 10
# A value with this many readers, such as a mask, is a stub at all but the nearest of them, if they
# are spread over this many rows.
SHARED, _SPREAD = 4, 4
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
        ways: The bends between each pair of children; None for a stub, which says at both ends
            where the line goes.
    """

    rows: Sequence[Sequence[int]]
    ways: Sequence[Sequence[int] | None]


def layers(children: int, pairs: Sequence[Pair]) -> Layers:
    """Lay out children that read from each other, each with a smaller number than its readers."""
    rank = _ranks(children, pairs)
    spans = _spans(pairs, rank)
    longest = next(
        most
        for most in range(_LONGEST, 0, -1)
        if sum(span - 1 for span in spans if span <= most) <= _BENDS * children + _FEW
    )
    connected = {child for pair in pairs for child in pair}
    rows: list[list[int]] = [[] for _ in range(max(rank, default=0) + 1)]
    for child in sorted(connected):
        rows[rank[child]].append(child)
    bends, ways = count(children), list[list[int] | None]()
    links: list[Pair] = []
    for (source, target), span in zip(pairs, spans, strict=True):
        if span > longest:
            ways.append(None)
            continue
        way = [next(bends) for _ in range(span - 1)]
        for row, bend in enumerate(way, rank[source] + 1):
            rows[row].append(bend)
        ways.append(way)
        links += pairwise((source, *way, target))
    _untangle(rows, links)
    alone = [child for child in range(children) if child not in connected]
    first = [alone[start : start + _ABREAST] for start in range(0, len(alone), _ABREAST)]
    return Layers([*first, *filter(None, rows)], ways)


def _spans(pairs: Sequence[Pair], rank: Sequence[int]) -> list[int]:
    """Return the rows that each line crosses, more than any line may for one that is a stub."""
    spans = [rank[target] - rank[source] for source, target in pairs]
    readers = Counter(source for source, _ in pairs)
    farthest: Counter[int] = Counter()
    for (source, _), span in zip(pairs, spans, strict=True):
        farthest[source] = max(farthest[source], span)
    shared = {s for s in readers if readers[s] >= SHARED and farthest[s] > _SPREAD}
    return [
        _LONGEST + 1 if span > 1 and source in shared else span
        for (source, _), span in zip(pairs, spans, strict=True)
    ]


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
