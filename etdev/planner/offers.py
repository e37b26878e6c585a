"""Offers: what one plugin is shown, and what is left of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from etdev.errors import ClaimError
from etdev.graph.method import MethodGraph
from etdev.registry.plugin import Plugin
from etdev.schema.claims import Claim, Group
from etdev.schema.ledger import FOREIGN, LOST, LedgerBook, Verdict


@frozen(eq=False)
class View:
    """What one plugin is shown.

    Args:
        graph: The method, with the ops whole that this plugin wants whole.
        parts: For each part of an op that others want whole, the name of that op.
    """

    graph: MethodGraph
    parts: Mapping[str, str] = field(factory=dict)


@frozen(eq=False)
class Offer:
    """What is left of a claim after earlier plugins have had theirs.

    Args:
        claim: The claim.
        groups: Names of nodes, disjoint, each group whole.
        constants: Constants that the claim's groups name.
    """

    claim: Claim
    groups: list[list[str]]
    constants: set[str]


@frozen(eq=False)
class Draft:
    """A partition that its plugin may have, if it comes up to the plugin's limits.

    Args:
        offer: The offer it is made of.
        numbers: Its nodes, ascending.
        split_by: Name of the node that kept it apart from an earlier partition of the offer.
    """

    offer: Offer
    numbers: tuple[int, ...]
    split_by: str | None


@define(eq=False)
class Offering:
    """Makes offers of one plugin's claims.

    Args:
        plugin: The plugin.
        view: What it was shown.
        gone: Owner of each node that somebody has.
        barred: Verdicts on the nodes that it can't have, whether or not anybody has them.
        book: Where it is written down what it refuses and what it doesn't get.
    """

    plugin: Plugin
    view: View
    gone: dict[str, str]
    barred: Mapping[str, Verdict]
    book: LedgerBook

    def offers(self, answer: Any) -> list[Offer]:
        """What is left of what `claim_nodes` returned.

        Raises:
            ClaimError: It is no claim, or names nodes that are not there.
        """
        offers = []
        for claim in self._claims(answer):
            offers.append(self._offer(claim))
            # What it claimed once it can't claim again for another backend.
            self.gone |= {name: self.plugin.name for g in offers[-1].groups for name in g}
        return offers

    def _claims(self, answer: Any) -> list[Claim]:
        claims = [answer] if isinstance(answer, Claim) else list(answer or ())
        for claim in claims:
            if not isinstance(claim, Claim):
                raise ClaimError(
                    self.plugin.name, f"claim_nodes returned {claim!r}", "return a Claim or several"
                )
        return claims

    def _offer(self, claim: Claim) -> Offer:
        for refusal in claim.refusals:
            if refusal.node not in self.view.graph.number:
                raise self._unknown(refusal.node, "refuses")
            self.book.say(refusal.node, self.plugin.name, refusal.code, refusal.text)
        constants: set[str] = set()
        groups: list[list[str]] = []
        home: dict[str, int] = {}
        for group in claim.groups:
            names = self._names(group, constants)
            if not names or self._contested(names):
                continue
            for other in {home[name] for name in names if name in home}:
                names += groups[other]
                groups[other] = []
            names = list(dict.fromkeys(names))
            home.update(dict.fromkeys(names, len(groups)))
            groups.append(names)
        return Offer(claim, [group for group in groups if group], constants)

    def _names(self, group: Group, constants: set[str]) -> list[str]:
        graph = self.view.graph
        wanted = []
        for name in group.nodes:
            if name in graph.constants:
                constants.add(name)
            elif name in graph.number:
                wanted.append(graph.number[name])
            else:
                raise self._unknown(name, "claims")
        numbers = graph.with_followers(wanted)
        names = [graph.nodes[number].name for number in numbers]
        if orphan := graph.orphan(numbers):
            source = graph.nodes[graph.inputs[graph.number[orphan.name]][0]]
            if source.name not in graph.foreign:
                self._lose(names, "group", f"{orphan.name} can't be had without {source.name}")
                return []
        return names

    def _contested(self, names: Sequence[str]) -> bool:
        """Whether some node of a group can't be had; then the whole group is lost."""
        alone = len(names) == 1
        for name in names:
            if name in self.view.graph.foreign:
                self._lose(names, FOREIGN, f"{name} belongs to a delegate")
                return True
            if verdict := self.barred.get(name):
                self._lose(names, verdict.code, f"{'' if alone else f'{name}: '}{verdict.text}")
                return True
            if owner := self.gone.get(name):
                self._lose(names, LOST, f"owned by {owner}" if alone else f"lost {name} to {owner}")
                return True
        return False

    def _lose(self, names: Sequence[str], code: str, text: str) -> None:
        self.book.say_all(names, self.plugin.name, code, text)

    def _unknown(self, name: str, verb: str) -> ClaimError:
        method = self.view.graph.method
        return ClaimError(
            self.plugin.name,
            f"{verb} {name!r}, which is no computing node of method {method!r}",
            "name nodes of the program that claim_nodes was given, no inputs or outputs",
        )
