"""Layout of a group's children in rows with few crossings, and of the lines between them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

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
    """Lay out children that read from each other.

    Args:
        count: Number of children.
        pairs: A child and one that reads from it, which has a larger number.

    Raises:
        EtdevError: fast-sugiyama is not installed.
    """
    # The library stops the process if there is a cycle.
    assert all(source < target for source, target in pairs)
    short = _short(count, pairs)
    drawing = _Drawing(count)
    for members, own in _parts(short):
        drawing.add(members, own)
    return drawing.layers(pairs)


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


@define
class _Drawing:
    """Rows and lines of several connected parts, side by side."""

    count: int
    rows: list[list[int]] = field(factory=list)
    ways: dict[Pair, tuple[int, ...]] = field(factory=dict)
    bends: int = 0

    def add(self, children: Sequence[int], pairs: Sequence[Pair]) -> None:
        """Lay out a connected part."""
        local = {child: index for index, child in enumerate(children)}
        positions, edges = _drawn([(local[a], local[b]) for a, b in pairs])
        # The library's numbers of bends, and its order, may differ from run to run.
        numbers = dict(enumerate(children))
        rows = _rows(positions)
        for index, row in enumerate(rows):
            if index == len(self.rows):
                self.rows.append([])
            for item in row:
                if item not in numbers:
                    numbers[item] = self.count + self.bends
                    self.bends += 1
                self.rows[index].append(numbers[item])
        follower = dict(edge for edge in edges if edge[0] >= len(children))
        for source, item in edges:
            if source < len(children):
                way = []
                while item >= len(children):
                    way.append(numbers[item])
                    item = follower[item]
                self.ways[numbers[source], numbers[item]] = tuple(way)

    def layers(self, pairs: Sequence[Pair]) -> Layers:
        """Return all parts, and the children that are in none."""
        drawn = {item for row in self.rows for item in row}
        alone = [child for child in range(self.count) if child not in drawn]
        rows = [tuple(alone[i : i + _ABREAST]) for i in range(0, len(alone), _ABREAST)]
        ways = tuple((pair, self.ways.get(pair, ())) for pair in pairs)
        return Layers((*rows, *map(tuple, self.rows)), ways)


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


def _parts(pairs: Sequence[Pair]) -> list[tuple[list[int], list[Pair]]]:
    """Return the children and the pairs of each connected part."""
    home: dict[int, list[int]] = {}
    for source, target in pairs:
        one = home.setdefault(source, [source])
        other = home.setdefault(target, [target])
        if one is not other:
            large, small = (one, other) if len(one) >= len(other) else (other, one)
            large += small
            home |= dict.fromkeys(small, large)
    first = {id(part): min(part) for part in {id(part): part for part in home.values()}.values()}
    own: dict[int, list[Pair]] = {}
    for pair in pairs:
        own.setdefault(first[id(home[pair[0]])], []).append(pair)
    return [(sorted(home[child]), own[child]) for child in sorted(own)]


def _drawn(
    pairs: Sequence[Pair],
) -> tuple[dict[int, tuple[float, float]], Sequence[Pair]]:
    """Return positions by number, and edges, both with bends as further numbers."""
    require_library()
    from fast_sugiyama import from_edges

    # With more pairs, the library's further passes take minutes.
    quick = {"ranking_type": "up", "transpose": False} if len(pairs) > _MANY else {}
    ((positions, _, _, edges),) = from_edges(list(pairs), **quick)
    return dict(positions), edges


def _rows(positions: Mapping[int, tuple[float, float]]) -> list[list[int]]:
    """Return rows from top to bottom, each from left to right."""
    rows: dict[float, list[tuple[float, int]]] = {}
    for item, (x, y) in positions.items():
        rows.setdefault(y, []).append((x, item))
    return [[item for _, item in sorted(rows[y])] for y in sorted(rows, reverse=True)]
