"""The differences between two plans or .pte files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from etdev.schema.cost import Workload
from etdev.schema.displayed import Displayed
from etdev.schema.documents import DIFFERENCE
from etdev.schema.ledger import Entry
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.structuring import CONVERTER
from etdev.schema.wording import counted

# The precision that is not named.
PLAIN = "float32"


@frozen
class Figure:
    """A number that changed."""

    what: str
    before: int
    after: int


@frozen
class Move:
    """A node that is new or gone, or that has another owner, device or precision.

    Before and after are owner, device, and another precision than float32, such as `trt on cuda:0
    in int8`; None where a plan lacks it. `nodes` are the node's names before and after, and `node`
    is the first that it has.
    """

    method: str
    node: str
    op: str
    module: str
    before: str | None
    after: str | None
    nodes: tuple[str | None, str | None]


@frozen
class Gained:
    """A method, a partition, a plugin or a file's contents that was added, removed or changed.

    Args:
        kind: `method`, `partition`, `fix` of a row, `plugins`, `contents` of a file, or the first
            `field` that differs of plans whose nodes, parts and figures are the same.
        method: Its method; empty for plugins and contents.
        before: The first side's in words; None if it has none.
        after: The second side's in words; None if it has none.
    """

    kind: str
    method: str
    before: str | None
    after: str | None


@frozen(repr=False)
class Difference(Displayed):
    """The changes from one plan or .pte to another, whose names are `before` and `after`."""

    before: str
    after: str
    nodes: tuple[Move, ...] = ()
    parts: tuple[Gained, ...] = ()
    figures: tuple[Figure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.parts or self.figures)

    @property
    def summary(self) -> str:
        """The number of changes by kind."""
        counts = {"nodes": self.nodes, "parts": self.parts, "figures": self.figures}
        return ", ".join(f"{kind} {len(of)}" for kind, of in counts.items() if of) or "no change"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return DIFFERENCE.stamped({"changed": bool(self), **CONVERTER.unstructure(self)})


def diff(first: Plan, second: Plan) -> Difference:
    """Compare two plans, the old one and the new one."""
    nodes: list[Move] = []
    parts: list[Gained] = []
    before, after = ({each.method: each for each in plan.methods} for plan in (first, second))
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            sides = (f"method {name}" if side else None for side in (old, new))
            parts.append(Gained("method", name, *sides))
        nodes += _moves(name, old, new)
        for kind, texts in (("partition", _partitions), ("fix", _fixes)):
            was, now = texts(old), texts(new)
            parts += [Gained(kind, name, text, None) for text in (was - now).elements()]
            parts += [Gained(kind, name, None, text) for text in (now - was).elements()]
    plugins = [", ".join(" ".join(p).strip() for p in plan.plugins) for plan in (first, second)]
    if plugins[0] != plugins[1]:
        parts.append(Gained("plugins", "", *plugins))
    figures = changed(_figures(first), _figures(second))
    if not (nodes or parts or figures):
        plain = (CONVERTER.unstructure(plan) for plan in (first, second))
        parts += itertools.islice(_fields(*plain), 1)
    return Difference("before", "after", tuple(nodes), tuple(parts), figures)


def _fields(before: Any, after: Any, path: str = "") -> Iterator[Gained]:
    """Yield the values that differ of two plans as plain data, with their paths."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _fields(before.get(key), after.get(key), f"{path}.{key}".removeprefix("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _fields(old, new, f"{path}[{index}]")
    elif before != after:
        yield Gained("field", "", f"{path}: {before}", f"{path}: {after}")


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Figure, ...]:
    """Return the figures that differ; a figure missing on one side is 0 there."""
    names = dict.fromkeys([*before, *after])
    rows = [Figure(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return tuple(row for row in rows if row.before != row.after)


def _moves(method: str, first: MethodPlan | None, second: MethodPlan | None) -> Iterator[Move]:
    before, after = _places(first), _places(second)
    for place in dict.fromkeys([*before, *after]):
        old, was = before.get(place, (None, None))
        new, now = after.get(place, (None, None))
        if was != now and (entry := old or new):
            names = (old.node if old else None, new.node if new else None)
            yield Move(method, entry.node, entry.op, entry.module, was, now, names)


def _places(plan: MethodPlan | None) -> dict[tuple[str, str, int], tuple[Entry, str]]:
    """Return owner, device and precision of each node, by module, op, and place among the same ops.

    Names don't identify nodes: a new layer changes the numbers in the names of all later ones.
    """
    owners: dict[tuple[str, str, int], tuple[Entry, str]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    devices = {p.name: p.device for p in plan.partitions} if plan else {}
    for entry in plan.ledger if plan else ():
        kind = entry.module, entry.op
        device = devices.get(entry.partition or "", "cpu")
        place = (*kind, seen[kind])
        precision = f" in {entry.precision}" if entry.precision not in ("", PLAIN) else ""
        owners[place] = entry, f"{entry.holder} on {device}{precision}"
        seen[kind] += 1
    return owners


def _partitions(plan: MethodPlan | None) -> Counter[str]:
    """Return the partitions in words, without names of nodes."""
    texts: list[str] = []
    if plan is None:
        return Counter()
    for part in plan.partitions:
        ops = [entry.op for entry in plan.ledger if entry.partition == part.name] or ["-"]
        specs = "".join(f", {spec}" for spec in part.compile_specs)
        inside = sum(constant.size_bytes for constant in part.constants if constant.inside)
        text = f"{part.plugin}: {part.backend_id} on {part.device}, {counted(len(ops), 'node')}"
        texts.append(f"{text} from {ops[0]} to {ops[-1]}, {inside} bytes of weights{specs}")
    return Counter(texts)


def _fixes(plan: MethodPlan | None) -> Counter[str]:
    """Return the rows that acted in words, without names of nodes."""
    fixes = plan.fixes if plan else ()
    return Counter(f"{fix.row} in {fix.stage}: {len(fix.found)}" for fix in fixes)


def _figures(plan: Plan) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for method in plan.methods:
        left = method.ledger.costs().get(PORTABLE, Workload())
        inside = [c.size_bytes for p in method.partitions for c in p.constants if c.inside]
        for what, number in (
            *((f"nodes of {owner}", n) for owner, n in sorted(method.ledger.owned().items())),
            *(
                (f"nodes of {owner} in {precision}", n)
                for owner, counts in sorted(method.ledger.precisions().items())
                for precision, n in sorted(counts.items())
                if precision != PLAIN
            ),
            ("delegates", len(method.partitions)),
            ("FLOPs on portable kernels", left.flops),
            ("bytes moved by portable kernels", left.moved_bytes),
            ("copies between devices", len(method.copies)),
            ("bytes copied at every run", sum(c.tensor.size_bytes or 0 for c in method.copies)),
            ("conversions at borders", len(method.conversions)),
            ("bytes converted", sum(c.tensor.size_bytes or 0 for c in method.conversions)),
            ("bytes of weights inside delegates", sum(inside)),
            ("bytes of weights stored again", method.copied_bytes),
        ):
            numbers[f"{method.method}: {what}"] = number
    return numbers
