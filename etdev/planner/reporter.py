"""The reporter, which writes the ledger of a method while it is planned.

Codes and texts are in etdev/schema/reasons.py.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from etdev.graph.flops import CostCounter
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import line_of, module_paths
from etdev.planner.pinning import Pinning, source_node, source_op
from etdev.registry.plugin import Plugin
from etdev.schema import reasons
from etdev.schema.claims import Refusal
from etdev.schema.ledger import Entry, Ledger, Offered, Verdict
from etdev.schema.pins import Pin
from etdev.schema.reasons import Reason

# A plugin, and the name of its partition; None for nodes that stay in the method's program.
Owner = tuple[str, str | None]


@define
class Reporter:
    """The last verdict of each plugin on each node, and the owner of each node.

    Args:
        caveats: Texts of claims' caveats, by plugin and node.
        owners: The owner of each node that has one.
    """

    caveats: dict[tuple[str, str], str] = field(factory=dict)
    owners: dict[str, Owner] = field(factory=dict)

    _verdicts: dict[str, dict[str, Verdict]] = field(factory=dict)
    # A plugin that is asked again offers some groups again.
    _groups: dict[Offered, None] = field(factory=dict)

    def offered(self, plugin: str, group: Sequence[str], why: str) -> None:
        """Note that a plugin wants some nodes together, whether or not it gets them."""
        if len(group) > 1 or why:
            self._groups[Offered(plugin, tuple(group), why)] = None

    def refused(self, plugin: str, refusal: Refusal) -> None:
        """Note that a plugin does not want a node."""
        self._say(refusal.node, Verdict(plugin, refusal.code, refusal.text))

    def owned(
        self, plugin: str, nodes: Iterable[str], partition: str | None = None, why: str = ""
    ) -> None:
        """Note that a plugin has nodes, which form a partition or stay in the method's program."""
        for node in nodes:
            self.owners[node] = plugin, partition
            text = why or self.caveats.get((plugin, node), "")
            self._say(node, Verdict(plugin, reasons.CLAIMED.code, text))

    def lost(self, nodes: Iterable[str], verdict: Verdict) -> None:
        """Note why a plugin lacks some nodes, except for those that it has after all."""
        for node in nodes:
            if self.owners.get(node, ("", None))[0] != verdict.plugin:
                self._say(node, verdict)

    def refusal(self, plugin: str, nodes: Iterable[str]) -> str:
        """Return why a plugin lacks the first of some nodes that it said something about."""
        said = (self._verdicts.get(node, {}).get(plugin) for node in nodes)
        return next((verdict.text for verdict in said if verdict), "")

    def ledger(
        self,
        graph: MethodGraph,
        plugins: Sequence[Plugin],
        pinning: Pinning,
        precisions: Mapping[str, str],
    ) -> Ledger:
        """Return the ledger of a method as it was decided, with the precision of each node.

        Plugins are in claim order; those built in were asked only about unclaimed nodes.
        """
        counter = CostCounter()
        builtin, entries = {plugin.name for plugin in plugins if plugin.builtin}, []
        for node, op in graph.ops.items():
            owner, partition = self.owners.get(node, (None, None))
            said, pin = self._verdicts.get(node, {}), pinning.pin(node)
            before = None if owner in builtin else owner
            verdicts = tuple(
                said.get(plugin.name) or _unsaid(plugin.name, before, pin)
                for plugin in plugins
                if plugin.name in said or not plugin.builtin
            )
            facts = {**_facts(graph, node), "precision": precisions[node]}
            facts["cost"] = counter.cost(graph.node(node))
            entries.append(Entry(node, op, owner, partition, verdicts, pin=pin, **facts))
        # Without nodes that the final method doesn't have.
        groups = [
            evolve(group, nodes=tuple(node for node in group.nodes if node in graph.ops))
            for group in self._groups
        ]
        left = (group for group in groups if len(group.nodes) > 1 or (group.nodes and group.why))
        return Ledger(tuple(entries), tuple(left))

    def _say(self, node: str, verdict: Verdict) -> None:
        self._verdicts.setdefault(node, {})[verdict.plugin] = verdict


def _unsaid(plugin: str, owner: str | None, pin: Pin | None) -> Verdict:
    """Return the verdict for a plugin that said nothing about a node."""
    if pin and pin.plugin != plugin:
        return verdict_of(plugin, reasons.PINNED, pin=pin)
    if owner:
        return verdict_of(plugin, reasons.LOST, owner=owner)
    return verdict_of(plugin, reasons.SILENT)


def verdict_of(plugin: str, reason: Reason, **values: object) -> Verdict:
    """Return the verdict for a plugin by a reason of the host, with the values in its text."""
    return Verdict(plugin, reason.code, reason.say(**values))


def _facts(graph: MethodGraph, name: str) -> dict[str, Any]:
    """Return a node's origin, inputs and values, as an entry of the ledger has them."""
    node = graph.node(name)
    read = (n for n in node.all_input_nodes if n.op != "get_attr")
    items = (graph.number[n.name] for n in node.users if n.target is operator.getitem)
    return {
        "module": "".join(module_paths(node)[-1:]),
        "source_op": source_op(node) or "",
        "source": source_node(node),
        "line": line_of(node),
        "inputs": tuple(n.name for n in read if n.name not in graph.constants),
        "values": tuple(graph.nodes[number].name for number in sorted(items)),
    }
