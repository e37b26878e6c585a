"""From claims to partitions: who gets which nodes of one method, in which partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.claims import Claim, Group
from etdev.convex import find_partitions
from etdev.errors import ClaimError
from etdev.graph import MethodGraph, describe
from etdev.ledger import FOREIGN, LOST, Ledger, LedgerBook
from etdev.plan import Constant, Partition
from etdev.plugin import Plugin


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


@define(eq=False)
class Partitioning:
    """The partitions of one method while they are being decided, plugin by plugin.

    Args:
        graph: The method as it is decided so far.
        owners: Owner of each node that has one.
        part_owners: For each op that is decomposed because of it, who took the first part.
    """

    graph: MethodGraph
    owners: dict[str, str] = field(factory=dict)
    part_owners: dict[str, str] = field(factory=dict)
    partitions: list[Partition] = field(factory=list)
    asked: list[str] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)
    book: LedgerBook = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.book = LedgerBook(self.graph.ops)

    def look_at(self, program: ExportedProgram) -> None:
        """Go on with another form of the program, in which owned nodes are called the same."""
        if program is not self.graph.program:
            self.graph = MethodGraph(program, self.graph.method)
            self.book.ops = self.graph.ops

    def offers(self, plugin: Plugin, view: View) -> list[Offer]:
        """Ask a plugin for its claims on a view of the program, and drop what others have."""
        if plugin.name not in self.asked:
            self.asked.append(plugin.name)
        graph = view.graph
        gone = {node.name: owner for node in graph.nodes if (owner := self._owner(view, node.name))}
        before = graph.fingerprint()
        answer = plugin.ask(
            "claim_nodes", program=graph.program, method=graph.method, taken=dict(gone)
        )
        if graph.fingerprint() != before:
            raise ClaimError(
                plugin.name,
                f"claim_nodes changed the graph of method {graph.method!r}",
                "look at the program, don't change it",
            )
        offers = []
        for claim in _as_claims(plugin, answer):
            offers.append(self._offer(plugin, claim, view, gone))
            # What it claimed once it can't claim again for another backend.
            gone |= {name: plugin.name for group in offers[-1].groups for name in group}
        return offers

    def accept(self, plugin: Plugin, offer: Offer) -> None:
        """Form partitions of what a plugin can have, in the program as it is now."""
        groups = [[self.graph.number[name] for name in group] for group in offer.groups]
        found = find_partitions(
            self.graph.inputs,
            groups,
            [[self.graph.number[name] for name in part.nodes] for part in self.partitions],
            offer.claim.merge,
        )
        for index, blocker in found.torn.items():
            text = f"{self.graph.nodes[blocker].name} lies between its group's nodes"
            self._lose(plugin, offer.groups[index], "convexity", text)
        for numbers, cause in zip(found.partitions, found.split_by, strict=True):
            self._own(plugin, offer.claim, numbers, cause, offer.constants)

    def ledger(self) -> Ledger:
        """The ledger so far."""
        return self.book.close(self.asked)

    def fallback(self) -> tuple[str, ...]:
        """Computing nodes that nobody owns."""
        ours = self.book.owners
        return tuple(n for n in self.graph.ops if n not in ours and n not in self.graph.foreign)

    def _owner(self, view: View, name: str) -> str | None:
        """Who has a node of a view, or a part of it, or the op that it is a part of."""
        return (
            self.owners.get(name)
            or self.owners.get(view.parts.get(name, ""))
            or self.part_owners.get(name)
        )

    def _offer(self, plugin: Plugin, claim: Claim, view: View, gone: Mapping[str, str]) -> Offer:
        for refusal in claim.refusals:
            if refusal.node not in view.graph.number:
                raise self._unknown(plugin, refusal.node, "refuses")
            self.book.say(refusal.node, plugin.name, refusal.code, refusal.text)
        constants: set[str] = set()
        groups: list[list[str]] = []
        home: dict[str, int] = {}
        for group in claim.groups:
            names = self._names(plugin, group, view.graph, constants)
            if not names or self._contested(plugin, names, view.graph, gone):
                continue
            for other in {home[name] for name in names if name in home}:
                names += groups[other]
                groups[other] = []
            names = list(dict.fromkeys(names))
            home.update(dict.fromkeys(names, len(groups)))
            groups.append(names)
        return Offer(claim, [group for group in groups if group], constants)

    def _names(
        self, plugin: Plugin, group: Group, graph: MethodGraph, constants: set[str]
    ) -> list[str]:
        wanted = []
        for name in group.nodes:
            if name in graph.constants:
                constants.add(name)
            elif name in graph.number:
                wanted.append(graph.number[name])
            else:
                raise self._unknown(plugin, name, "claims")
        numbers = graph.with_followers(wanted)
        names = [graph.nodes[number].name for number in numbers]
        if orphan := graph.orphan(numbers):
            source = graph.nodes[graph.inputs[graph.number[orphan.name]][0]]
            if source.name not in graph.foreign:
                text = f"{orphan.name} can't be had without {source.name}"
                self._lose(plugin, names, "group", text)
                return []
        return names

    def _contested(
        self, plugin: Plugin, names: Sequence[str], graph: MethodGraph, gone: Mapping[str, str]
    ) -> bool:
        """Whether somebody else has a node of a group; then the whole group is lost."""
        for name in names:
            if name in graph.foreign:
                self._lose(plugin, names, FOREIGN, f"{name} belongs to a delegate")
                return True
            if owner := gone.get(name):
                whole = f"owned by {owner}" if len(names) == 1 else f"lost {name} to {owner}"
                self._lose(plugin, names, LOST, whole)
                return True
        return False

    def _lose(self, plugin: Plugin, names: Sequence[str], code: str, text: str) -> None:
        for name in names:
            if self.owners.get(name) != plugin.name:
                self.book.say(name, plugin.name, code, text)

    def _own(
        self,
        plugin: Plugin,
        claim: Claim,
        numbers: Sequence[int],
        cause: int | None,
        grouped: Container[str],
    ) -> None:
        mine = self.counts[plugin.name]
        self.counts[plugin.name] += 1
        reads = self.graph.reads(numbers)
        partition = Partition(
            name=f"{plugin.name}_{mine}",
            method=self.graph.method,
            plugin=plugin.name,
            backend_id=claim.backend_id,
            nodes=tuple(self.graph.nodes[number].name for number in numbers),
            outputs=tuple(describe(node) for node in self.graph.outputs(numbers)),
            constants=tuple(self._constants(reads, grouped)),
            device_types=claim.device_types,
            named_data=claim.named_data,
            compile_specs=claim.compile_specs,
            split_by=None if cause is None else self.graph.nodes[cause].name,
            compiler=claim.compiler,
        )
        self.partitions.append(partition)
        for name in partition.nodes:
            self.owners[name] = plugin.name
            if name in self.book.ops:
                self.book.own(name, plugin.name, partition.name)

    def _constants(self, reads: Sequence[Node], grouped: Container[str]) -> list[Constant]:
        known = self.graph.constants
        return [
            evolve(known[node.name], grouped=node.name in grouped)
            for node in reads
            if node.name in known
        ]

    def _unknown(self, plugin: Plugin, name: str, verb: str) -> ClaimError:
        return ClaimError(
            plugin.name,
            f"{verb} {name!r}, which is no computing node of method {self.graph.method!r}",
            "name nodes of the program that claim_nodes was given, no inputs or outputs",
        )


def _as_claims(plugin: Plugin, answer: Any) -> list[Claim]:
    claims = [answer] if isinstance(answer, Claim) else list(answer or ())
    for claim in claims:
        if not isinstance(claim, Claim):
            raise ClaimError(
                plugin.name, f"claim_nodes returned {claim!r}", "return a Claim or several"
            )
    return claims
