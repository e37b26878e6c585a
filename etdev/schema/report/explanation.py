"""Explanation of a plan: the ops that fall back and why, and the story of single nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from attrs import field, frozen

from etdev.schema import globs
from etdev.schema.documents import CONVERTER, EXPLANATION
from etdev.schema.ledger import Entry, Verdict
from etdev.schema.modules import around
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.report.story import Facts
from etdev.schema.simplification import Simplification


@frozen
class Query:
    """The nodes that a user asks about; every given criterion must match.

    Args:
        node: Glob of node names.
        module: Glob of module paths; a module stands for all that is in it.
        op: Glob of ops, as they are now or as they were in the exported program.
        plugin: A plugin that was asked about the nodes.
    """

    node: str | None = None
    module: str | None = None
    op: str | None = None
    plugin: str | None = None

    def matches(self, entry: Entry) -> bool:
        """Return True if a node matches."""
        wanted = ((self.node, [entry.node]), (self.op, [entry.op, entry.source_op]))
        if not all(p is None or any(globs.matches(p, n) for n in names) for p, names in wanted):
            return False
        if self.plugin is not None and self.plugin not in (v.plugin for v in entry.verdicts):
            return False
        if self.module is not None:
            return any(globs.matches(self.module, path) for path in around(entry.module))
        return True

    def matches_simplified(self, simplified: Simplification) -> bool:
        """Return True if a node that was simplified before plugins were asked matches."""
        node = Entry(simplified.node, simplified.op, None, None, (), module=simplified.module)
        return self.matches(node)

    def __str__(self) -> str:
        keys = ("node", "module", "op", "plugin")
        return " ".join(f"--{k} {v}" for k in keys if (v := getattr(self, k)) is not None)


@frozen
class Reason:
    """A plugin's reason to leave some nodes: its code, and its most frequent text."""

    plugin: str
    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.plugin}: {self.text or self.code}"


@frozen
class Missed:
    """Nodes of one op that the asked plugins don't own, for the same reasons.

    Args:
        method: Their method.
        op: Their op.
        reasons: One for each plugin that was asked.
        nodes: Their names, in graph order.
        modules: Their source modules, each once.
        lines: Their source lines, each once.
        owner: The plugin that owns them; None for a delegate that the program came with.
    """

    method: str
    op: str
    reasons: tuple[Reason, ...]
    nodes: tuple[str, ...]
    modules: tuple[str, ...]
    lines: tuple[str, ...]
    owner: str | None = None


@frozen
class Told:
    """A node, and its story in sentences."""

    method: str
    entry: Entry
    story: tuple[str, ...]


@frozen
class Simplified:
    """A node that was taken out or changed before plugins were asked."""

    method: str
    was: Simplification

    def __str__(self) -> str:
        return f"{self.method}/{self.was}. {self.was.outcome}"


@frozen(slots=False)
class Explanation:
    """A plan's answers about some of its nodes.

    Args:
        plan: The plan.
        query: The nodes that are asked about.
    """

    plan: Plan
    query: Query = field(factory=Query)

    @cached_property
    def entries(self) -> list[tuple[MethodPlan, Entry]]:
        """The matching nodes with their methods, in graph order."""
        return [
            (method, entry)
            for method in self.plan.methods
            for entry in method.ledger
            if self.query.matches(entry)
        ]

    @cached_property
    def simplified(self) -> list[Simplified]:
        """The matching nodes that were simplified before plugins were asked."""
        return [
            Simplified(method.method, each)
            for method in self.plan.methods
            for each in method.simplified
            if self.query.matches_simplified(each)
        ]

    def matches(self, kind: str, pattern: str) -> bool:
        """Return True if some node matches one criterion alone: `node`, `module` or `op`."""
        alone = Explanation(self.plan, Query(**{kind: pattern}))
        return bool(alone.entries or alone.simplified)

    @property
    def owned(self) -> dict[str, dict[str, int]]:
        """Number of matching nodes per owner, by method; most nodes first."""
        counts: dict[str, Counter[str]] = {}
        for method, entry in self.entries:
            counts.setdefault(method.method, Counter())[entry.holder] += 1
        return {method: dict(count.most_common()) for method, count in counts.items()}

    @cached_property
    def missed(self) -> tuple[Missed, ...]:
        """The matching nodes on portable kernels, or those that the query's plugin doesn't own.

        They are grouped by method, op, owner and reasons, most nodes first.
        """
        plugin = self.query.plugin
        groups: dict[Any, list[Entry]] = {}
        for method, entry in self.entries:
            if entry.owner == plugin if plugin else not entry.falls_back:
                continue
            said = tuple((v.plugin, v.code) for v in _said(entry, plugin))
            groups.setdefault((method.method, entry.op, entry.owner, said), []).append(entry)
        missed = [
            _missed(method, op, owner, entries, plugin)
            for (method, op, owner, _), entries in groups.items()
        ]
        return tuple(sorted(missed, key=lambda item: -len(item.nodes)))

    def told(self) -> Iterator[Told]:
        """Yield the story of each matching node."""
        facts = {method.method: Facts(method) for method in self.plan.methods}
        for method, entry in self.entries:
            yield Told(method.method, entry, tuple(facts[method.method].story(entry)))

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, with the stories if the query has a criterion."""
        nodes = list(self.told()) if self.query != Query() else []
        return EXPLANATION.stamped(
            CONVERTER.unstructure(
                {
                    "query": self.query,
                    "plugins": self.plan.plugins,
                    "owned": self.owned,
                    "missed": self.missed,
                    "nodes": nodes,
                    "simplified": self.simplified,
                }
            )
        )


def _said(entry: Entry, plugin: str | None) -> list[Verdict]:
    """Return the verdicts of plugins that don't own a node, or one plugin's verdict."""
    return [verdict for verdict in entry.reasons if plugin in (None, verdict.plugin)]


def _missed(
    method: str, op: str, owner: str | None, entries: Sequence[Entry], plugin: str | None
) -> Missed:
    said: dict[tuple[str, str], Counter[str]] = {}
    for entry in entries:
        for verdict in _said(entry, plugin):
            said.setdefault((verdict.plugin, verdict.code), Counter())[verdict.text] += 1
    return Missed(
        method=method,
        op=op,
        reasons=tuple(Reason(*key, texts.most_common(1)[0][0]) for key, texts in said.items()),
        nodes=tuple(entry.node for entry in entries),
        modules=tuple(dict.fromkeys(entry.module for entry in entries if entry.module)),
        lines=tuple(dict.fromkeys(entry.line for entry in entries if entry.line)),
        owner=owner,
    )
