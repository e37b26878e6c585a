"""What is left of a claim after pins, and after the plugins that were asked before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, field, frozen

from etdev.graph.groups import joined
from etdev.planner.reporter import Reporter
from etdev.planner.views import View
from etdev.schema.claims import Claim, Group
from etdev.schema.ledger import Verdict


@frozen(eq=False)
class Offer:
    """What is left of a claim.

    Args:
        claim: The claim.
        groups: Names of nodes, disjoint, each group whole.
        constants: Constants that the claim's groups name.
        why: What the claim's groups say that they matched, by node.
    """

    claim: Claim
    groups: list[list[str]]
    constants: set[str]
    why: Mapping[str, str]


@define(eq=False)
class Offering:
    """Makes offers of one plugin's claims.

    Args:
        plugin: Its name.
        view: What it was shown.
        taken: Owner of each node that has one.
        barred: Verdicts on the nodes that it can't have, whether or not another plugin does.
        reporter: Told of what it refuses and of what it loses.
    """

    plugin: str
    view: View
    taken: Mapping[str, str]
    barred: Mapping[str, Verdict]
    reporter: Reporter
    # What it claimed once it can't claim again for another backend.
    _claimed: set[str] = field(factory=set)

    def offers(self, claims: Iterable[Claim]) -> list[Offer]:
        """What is left of the claims, in their order."""
        return [self._offer(claim) for claim in claims]

    def _offer(self, claim: Claim) -> Offer:
        for refusal in claim.refusals:
            self.reporter.refused(self.plugin, refusal)
        constants: set[str] = set()
        # Groups that share a node are one.
        groups = joined(self._offered(claim, constants))
        self._claimed.update(name for group in groups for name in group)
        why = {name: group.why for group in claim.groups for name in group.nodes if group.why}
        return Offer(claim, groups, constants, why)

    def _offered(self, claim: Claim, constants: set[str]) -> Iterator[list[str]]:
        """The groups of a claim that no other plugin has a node of."""
        for group in claim.groups:
            names = self._names(group, constants)
            self.reporter.offered(self.plugin, names, group.why)
            if names and not self._lost(names):
                yield names

    def _names(self, group: Group, constants: set[str]) -> list[str]:
        """The nodes of a group and what can't be apart from them; none if its op is missing."""
        graph = self.view.graph
        constants.update(name for name in group.nodes if name in graph.constants)
        wanted = [graph.number[name] for name in group.nodes if name in graph.number]
        numbers = graph.with_followers(wanted)
        names = [graph.nodes[number].name for number in numbers]
        if orphan := graph.orphan(numbers):
            source = graph.nodes[graph.inputs[graph.number[orphan.name]][0]]
            if source.name not in graph.foreign:
                self.reporter.orphaned(names, self.plugin, orphan.name, source.name)
                return []
        return names

    def _lost(self, names: Sequence[str]) -> bool:
        """Whether some node of a group can't be had; then the whole group is lost."""
        for name in names:
            if name in self.view.graph.foreign:
                self.reporter.foreign(names, self.plugin, name)
                return True
            if verdict := self.barred.get(name):
                self.reporter.barred(names, self.plugin, name, verdict)
                return True
            owner = self.plugin if name in self._claimed else self.taken.get(name)
            if owner:
                self.reporter.lost(names, self.plugin, name, owner)
                return True
        return False
