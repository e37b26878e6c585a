"""Layout of a group's children in rows with few crossings, and of the lines between them."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import frozen

from etdev.errors import EtdevError

# A line across more rows is drawn straight. Otherwise, most of the layout would be bends, of values
# that every layer of a model reads.
_LONGEST = 24
# Most bends: a number for each child, and a few.
_BENDS, _FEW = 3, 1000
_MANY = 1000
# Children without a connection are put in rows of that many.
_ABREAST = 8

Pair = tuple[int, int]
Position = tuple[float, float]


@frozen
class Layers:
    """Rows of children and bends, from top to bottom; bends are numbered after the children.

    Args:
        rows: Numbers in each row.
        ways: Bends between each pair of children.
    """

    rows: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[Pair, tuple[int, ...]], ...]


def layers(count: int, pairs: Sequence[Pair]) -> Layers:
    """Lay out children that read from each other, each with a smaller number than its readers.

    Raises:
        EtdevError: fast-sugiyama is not installed.
    """
    # The library stops the process if there is a cycle.
    assert all(source < target for source, target in pairs)
    short = _short(count, pairs)
    children = sorted({child for pair in short for child in pair})
    number = {child: index for index, child in enumerate(children)}
    rows: list[list[int]] = []
    ways: dict[Pair, tuple[int, ...]] = {}
    bends = itertools.count(count)
    for positions, edges in _parts([(number[a], number[b]) for a, b in short]):
        # The library's numbers of bends, and its order, may differ from run to run.
        known = dict(enumerate(children))
        for index, row in enumerate(_rows(positions)):
            rows += [[]] if index == len(rows) else []
            for item in row:
                if item not in known:
                    known[item] = next(bends)
                rows[index].append(known[item])
        follower = dict(edge for edge in edges if edge[0] >= len(children))
        for source, item in edges:
            if source < len(children):
                way = []
                while item >= len(children):
                    way.append(known[item])
                    item = follower[item]
                ways[known[source], known[item]] = tuple(way)
    alone = [child for child in range(count) if child not in number]
    first = [tuple(alone[i : i + _ABREAST]) for i in range(0, len(alone), _ABREAST)]
    drawn = tuple((pair, ways.get(pair, ())) for pair in pairs)
    return Layers((*first, *map(tuple, rows)), drawn)


def require_library() -> None:
    """Check that the library for layouts is installed.

    Raises:
        EtdevError: fast-sugiyama is not installed.
    """
    try:
        import fast_sugiyama  # noqa: F401
    except ImportError as error:
        what = "needs fast-sugiyama, which is not installed"
        old = sys.version_info < (3, 11)
        cure = "use Python 3.11 or later" if old else "pip install 'etdev[page]'"
        raise EtdevError("html", what, cure) from error


def _short(count: int, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs that are near enough to each other for bends between them."""
    spans = _spans(count, pairs)
    passed: Counter[int] = Counter()
    for span in spans.values():
        passed[span] += span - 1
    bends, longest = 0, 1
    while longest < _LONGEST and bends + passed[longest + 1] <= _BENDS * count + _FEW:
        longest += 1
        bends += passed[longest]
    return [pair for pair in pairs if spans[pair] <= longest]


def _spans(count: int, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Return how many rows each pair is apart, by the longest paths."""
    rank = [0] * count
    for source, target in sorted(pairs, key=lambda pair: pair[1]):
        rank[target] = max(rank[target], rank[source] + 1)
    first_read: dict[int, int] = {}
    for source, target in pairs:
        first_read[source] = min(rank[target], first_read.get(source, count))
    read = {target for _, target in pairs}
    # A child that reads nothing is drawn right above its first reader.
    starts = {s: rank[s] if s in read else first_read[s] - 1 for s, _ in pairs}
    return {pair: rank[pair[1]] - starts[pair[0]] for pair in pairs}


def _parts(pairs: Sequence[Pair]) -> list[tuple[Mapping[int, Position], Sequence[Pair]]]:
    """Return positions and edges of each connected part, with bends as further numbers."""
    require_library()
    from fast_sugiyama import from_edges

    # With more pairs, the library's further passes take minutes.
    quick = {"ranking_type": "up", "transpose": False} if len(pairs) > _MANY else {}
    drawn = from_edges(list(pairs), **quick) if pairs else []
    parts = [(dict(positions), edges) for positions, _, _, edges in drawn]
    return sorted(parts, key=lambda part: min(part[0]))


def _rows(positions: Mapping[int, Position]) -> list[list[int]]:
    """Return rows from top to bottom, each from left to right."""
    rows: dict[float, list[tuple[float, int]]] = {}
    for item, (x, y) in positions.items():
        rows.setdefault(y, []).append((x, item))
    return [[item for _, item in sorted(rows[y])] for y in sorted(rows, reverse=True)]
