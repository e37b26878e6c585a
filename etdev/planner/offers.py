"""Offers: the groups of a claim that pins and earlier plugins leave to a plugin."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from etdev.graph.convex import joined
from etdev.planner.forms import Form
from etdev.planner.reporter import Reporter, verdict_of
from etdev.schema import reasons
from etdev.schema.claims import Claim, Group
from etdev.schema.ledger import Offered, Verdict


@frozen(eq=False)
class Offer:
    """A claim with the groups that its plugin can still have."""

    claim: Claim
    # Disjoint groups of names of nodes, and the constants that they name.
    groups: list[list[str]]
    constants: set[str]


@define(eq=False)
class ClaimFilter:
    """The offers of one plugin, made of its claims."""

    plugin: str
    # The form of the method that it was shown.
    form: Form
    # Owner of each node that has one, and verdicts on the nodes that the plugin can't have.
    taken: Mapping[str, str]
    barred: Mapping[str, Verdict]
    reporter: Reporter
    # Groups that it has whole or not at all, and doesn't get.
    missed: list[Offered] = field(factory=list)
    # A plugin can't claim a node again for another backend.
    _claimed: set[str] = field(factory=set)

    def offer(self, claim: Claim) -> Offer:
        """Return the offer that a claim makes, and report what the plugin lost."""
        for refusal in claim.refusals:
            self.reporter.refused(self.plugin, refusal)
        self.reporter.caveats.update({(self.plugin, c.node): c.text for c in claim.caveats})
        constants: set[str] = set()
        # Groups that share a node are one.
        groups = joined(self._offered(claim, constants))
        self._claimed.update(name for group in groups for name in group)
        return Offer(claim, groups, constants)

    def _offered(self, claim: Claim, constants: set[str]) -> Iterator[list[str]]:
        """Yield the groups of a claim in which no other plugin has a node."""
        for group in claim.groups:
            names = self._names(group, constants)
            self.reporter.offered(self.plugin, names, group.why)
            if names and not self._lost(names):
                yield names
            elif group.whole:
                self.missed.append(Offered(self.plugin, tuple(names), group.why))

    def _names(self, group: Group, constants: set[str]) -> list[str]:
        """Return a group with the nodes tied to it; nothing for a getitem without its op."""
        graph = self.form.graph
        constants.update(name for name in group.nodes if name in graph.constants)
        wanted = [graph.number[name] for name in group.nodes if name in graph.number]
        numbers = graph.with_followers(wanted)
        names = [graph.nodes[number].name for number in numbers]
        items = (graph.nodes[n] for n in numbers if graph.nodes[n].target is operator.getitem)
        inside = set(names)
        for item in items:
            source = item.all_input_nodes[0].name
            if source not in inside and source not in graph.foreign:
                values = {"node": item.name, "source": source}
                self.reporter.lost(names, verdict_of(self.plugin, reasons.GROUP, **values))
                return []
        return names

    def _lost(self, names: Sequence[str]) -> bool:
        """Return True if a node of a group is taken or barred; then the whole group is lost."""
        for name in names:
            if name in self.form.graph.foreign:
                self.reporter.lost(names, verdict_of(self.plugin, reasons.FOREIGN, node=name))
                return True
            if verdict := self.barred.get(name):
                text = verdict.text if len(names) == 1 else f"{name}: {verdict.text}"
                self.reporter.lost(names, evolve(verdict, text=text))
                return True
            owner = self.plugin if name in self._claimed else self.taken.get(name)
            if owner:
                reason = reasons.LOST if len(names) == 1 else reasons.LOST_GROUP
                verdict = verdict_of(self.plugin, reason, owner=owner, node=name)
                self.reporter.lost(names, verdict)
                return True
        return False
