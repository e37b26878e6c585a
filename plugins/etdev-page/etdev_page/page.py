"""Page of a plan, of a .pte or of a profile, as one HTML file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, frozen

from etdev import diff
from etdev.app import files
from etdev.report.explanation import Explanation
from etdev.schema.plan import MethodPlan, Plan
from etdev_page.charts import charts
from etdev_page.colours import colours_of
from etdev_page.graph import Graph, graph_of
from etdev_page.hot import hot
from etdev_page.layers import SHARED, Pair, layers
from etdev_page.modules import Group, groups_of

if TYPE_CHECKING:
    from etdev.cli.viewing import Scatter
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

_FOLDER = Path(__file__).parent
# In this order, since code that runs while a file is read uses the files before it.
_SCRIPTS = (
    *("elements", "model", "graph", "camera", "map", "details", "tables", "sidebar", "filters"),
    *("changes", "start"),
)
# An HTML parser ends a script at its first `</script`, and begins a comment at `<!--`, also inside
# of JSON text; JSON reads the escaped form as the same text.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


@frozen
class Page:
    """A page that shows a plan in a browser. Equal plans give equal bytes.

    Args:
        plan: The plan.
        title: Text above it.
        artifact: The .pte of the plan, for its memory.
        profile: Profile of a run.
        stages: Seconds of each stage of the lowering.
        note: Remark for the reader, such as why something is missing.
        before: Page of an earlier plan, with which the page compares this one.
        scatters: Scatter charts, drawn above the others.

    Example:
        Page(lowered.plan, stages=lowered.stages.seconds).save("plan.html")
    """

    plan: Plan
    title: str = "plan"
    artifact: Artifact | None = None
    profile: Profile | None = None
    stages: Mapping[str, float] = field(factory=dict)
    note: str = ""
    before: Page | None = None
    scatters: Sequence[Scatter] = ()

    def data(self) -> dict[str, Any]:
        """Return the contents of the page as plain data, with the documents of the plan.

        `before` is the same of the earlier plan, and `changes` are the differences from it.
        """
        plan, before = self.plan, self.before
        plans = [*([before.plan] if before else ()), plan]
        names = [name for each in plans for name, _ in each.plugins]
        owners = (p.plugin for each in plans for p in each.partitions)
        data = {**self._side(), "colours": colours_of(names, owners)}
        if before:
            data |= {"before": before._side(), "changes": diff(before.plan, plan).to_dict()}
        return data

    def _side(self) -> dict[str, Any]:
        plan, profile = self.plan, self.profile
        return {
            "title": self.title,
            "note": self.note,
            "plan": plan.to_dict(),
            "explanation": Explanation(plan).to_dict(),
            "graphs": [_drawn(method) for method in plan.methods],
            "scatters": [asdict(scatter) for scatter in self.scatters],
            "charts": charts(plan, self.artifact, profile, self.stages),
            "run": {"method": profile.method, "ms": profile.ms} if profile else None,
            "times": _times(profile) if profile else {},
            "hot": hot(plan, profile) if profile else [],
        }

    def html(self) -> str:
        """Return the page as text."""
        parts = {
            "title": escape(self.title),
            "style": _read("page.css"),
            "data": json.dumps(self.data(), separators=(",", ":")).translate(_ESCAPES),
            "script": "\n".join(['"use strict";', *(_read(f"script/{s}.js") for s in _SCRIPTS)]),
        }
        pieces = _read("page.html").split("@@")
        # Every second piece is the name of a part. Parts are not scanned for names.
        return "".join(parts[p] if index % 2 else p for index, p in enumerate(pieces))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file.

        Raises:
            EtdevError: It can't be written.
        """
        file = Path(path)
        files.write_text(file, self.html())
        return file


def _drawn(method: MethodPlan) -> dict[str, Any]:
    """Return the boxes and edges of a method, its modules with their layout, and its costs.

    The costs are each owner's share in words, and the predicted nanoseconds of each node.
    """
    graph = graph_of(method)
    groups = groups_of(graph)
    keys = ("kind", "name", "module")
    return {
        "boxes": [{key: getattr(vertex, key) for key in keys} for vertex in graph.vertices],
        "edges": [
            {"source": source, "target": target, "values": values}
            for (source, target), values in graph.edges.items()
        ],
        "modules": [_laid_out(group, groups, graph) for group in groups],
        "shares": method.ledger.shares(),
        "costs": {e.node: max(round(e.seconds * 1e9), 1) for e in method.ledger if e.seconds},
    }


def _laid_out(group: Group, groups: Sequence[Group], graph: Graph) -> dict[str, Any]:
    """Return a group with the rows of its children, and its lines with the edges on each.

    `outside` has the vertices outside of it that many of its children read.
    """
    count = len(graph.vertices)
    home = {
        vertex: position
        for position, child in enumerate(group.children)
        for vertex in ([child] if child < count else groups[child - count].vertices)
    }
    lines: dict[Pair, list[int]] = {}
    outside: dict[int, set[int]] = {}
    for number, (source, target) in enumerate(graph.edges):
        pair = home.get(source), home.get(target)
        if None not in pair and pair[0] != pair[1]:
            lines.setdefault(pair, []).append(number)  # type: ignore[arg-type]
        elif pair[0] is None and pair[1] is not None:
            outside.setdefault(source, set()).add(pair[1])
    drawn = layers(len(group.children), list(lines))
    return {
        "name": group.path,
        "part": group.part,
        "children": group.children,
        "rows": drawn.rows,
        "outside": {s: sorted(read) for s, read in outside.items() if len(read) >= SHARED},
        "lines": [
            {"source": source, "target": target, "edges": edges, "bends": bends}
            for ((source, target), edges), bends in zip(lines.items(), drawn.ways, strict=True)
        ],
    }


def _times(profile: Profile) -> Mapping[str, float]:
    """Return the times of a profile, of delegates alone if the plan is not known."""
    return profile.times or {cost.name: cost.ms for cost in profile.costs}


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
