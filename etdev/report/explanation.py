"""Explanation of a plan: its nodes that match a query, and the ops that fall back and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from attrs import asdict, field, frozen

from etdev.schema.cost import Workload, total
from etdev.schema.documents import EXPLANATION
from etdev.schema.ledger import Entry, Ledger, Verdict
from etdev.schema.pins import matches
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.reasons import RESERVED
from etdev.schema.structuring import CONVERTER


@frozen
class Query:
    """The nodes that a user asks about; every given criterion must match.

    Args:
        node: Glob of node names.
        module: Glob of module paths; a module stands for all that is in it.
        op: Glob of ops, as they are now or as they were in the exported program.
        asked: A plugin that was asked about the nodes.
    """

    node: str | None = None
    module: str | None = None
    op: str | None = None
    asked: str | None = None

    def matches(self, entry: Entry) -> bool:
        """Return True if a node matches."""
        asked = self.asked is None or any(v.plugin == self.asked for v in entry.verdicts)
        ops, modules = (entry.op, entry.source_op), _around(entry.module)
        return asked and matches(self, entry.node, ops, modules)

    def __str__(self) -> str:
        return " ".join(f"--{key} {value}" for key, value in asdict(self).items() if value)


@frozen
class Missed:
    """Nodes of one op that the asked plugins don't own, for the same reasons.

    Reasons have the texts of the first node. The owner is None for a delegate that the program came
    with. The cost is that of all nodes together, and their part of the method's in words.
    """

    method: str
    op: str
    reasons: tuple[Verdict, ...]
    nodes: tuple[str, ...]
    modules: tuple[str, ...]
    lines: tuple[str, ...]
    owner: str | None = None
    cost: Workload | None = None
    share: str = ""


@frozen(slots=False)
class Explanation:
    """A plan's answers about the nodes that match a query."""

    plan: Plan
    query: Query = field(factory=Query)

    @cached_property
    def entries(self) -> list[tuple[MethodPlan, Entry]]:
        """The matching nodes with their methods, in graph order."""
        methods = self.plan.methods
        return [(m, entry) for m in methods for entry in m.ledger if self.query.matches(entry)]

    @property
    def owned(self) -> dict[str, dict[str, int]]:
        """Number of matching nodes per owner, by method; most nodes first."""
        return {name: ledger.owned() for name, ledger in self._ledgers.items()}

    @property
    def precisions(self) -> dict[str, dict[str, dict[str, int]]]:
        """Number of matching nodes per precision, by method and owner."""
        return {name: ledger.precisions() for name, ledger in self._ledgers.items()}

    @cached_property
    def _ledgers(self) -> dict[str, Ledger]:
        """The matching nodes by method."""
        by_method = itertools.groupby(self.entries, key=lambda pair: pair[0].method)
        return {name: Ledger(tuple(e for _, e in pairs)) for name, pairs in by_method}

    @cached_property
    def missed(self) -> tuple[Missed, ...]:
        """The matching nodes on portable kernels, or those that the asked plugin doesn't own.

        They are grouped by method, op, owner and reasons, those that take longest first; a plugin's
        own refusals come before those that the host made.
        """
        plugin = self.query.asked
        groups: dict[Any, list[Entry]] = {}
        for method, entry in self.entries:
            if entry.owner == plugin if plugin else not entry.falls_back:
                continue
            codes = tuple((v.plugin, v.code) for v in self._said(entry))
            groups.setdefault((method.method, entry.op, entry.owner, codes), []).append(entry)
        missed, taken = [], {}
        for (name, op, owner, _), entries in groups.items():
            reasons = tuple(self._said(entries[0]))
            nodes = tuple(entry.node for entry in entries)
            modules = dict.fromkeys(entry.module for entry in entries if entry.module)
            lines = dict.fromkeys(entry.line for entry in entries if entry.line)
            where = tuple(modules), tuple(lines)
            cost = sum((entry.cost for entry in entries if entry.cost), Workload())
            share = self._share(name, cost)
            missed.append(Missed(name, op, reasons, nodes, *where, owner, cost, share))
            taken[nodes] = sum(entry.seconds for entry in entries)

        def rank(item: Missed) -> tuple[bool, float, int]:
            return self._is_lost(item), -taken[item.nodes], -len(item.nodes)

        return tuple(sorted(missed, key=rank))

    @cached_property
    def _wholes(self) -> dict[str, Workload]:
        """The cost of each method."""
        return {method.method: total(method.ledger.costs()) for method in self.plan.methods}

    def _share(self, method: str, cost: Workload) -> str:
        """Return the part of a method's cost in words."""
        whole = self._wholes[method]
        return "" if whole.vanishes else "none at run time" if cost.vanishes else cost.share(whole)

    def _is_lost(self, missed: Missed) -> bool:
        """Return True if the query's plugin didn't refuse these nodes itself."""
        return bool(self.query.asked) and all(v.code in RESERVED for v in missed.reasons)

    def _said(self, entry: Entry) -> list[Verdict]:
        """Return the verdicts of plugins that don't own a node, or of the query's plugin."""
        return [v for v in entry.reasons if self.query.asked in (None, v.plugin)]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, with the nodes if the query has a criterion."""
        entries = self.entries if self.query != Query() else []
        content = {
            "query": self.query,
            "plugins": self.plan.plugins,
            "owned": self.owned,
            "precisions": self.precisions,
            "conversions": {m.method: m.conversions for m in self.plan.methods},
            "fixes": {m.method: m.fixes for m in self.plan.methods},
            "missed": self.missed,
            "nodes": [{"method": m.method, "entry": entry} for m, entry in entries],
        }
        return EXPLANATION.stamped(CONVERTER.unstructure(content))


def _around(module: str) -> Iterator[str]:
    """Yield the paths of a module and of the modules that contain it."""
    while module:
        yield module
        module = module.rpartition(".")[0]
