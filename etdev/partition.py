"""From claims to partitions: who gets which nodes of one method, in which partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import define, evolve, field
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.claims import Claim, Group
from etdev.convex import find_partitions
from etdev.errors import ClaimError
from etdev.graph import MethodGraph, describe
from etdev.ledger import FOREIGN, LOST, Ledger, LedgerBook
from etdev.plan import Constant, Partition
from etdev.plugin import Plugin


@define(eq=False)
class Partitioning:
    """The partitions of one method while they are being decided, plugin by plugin."""

    graph: MethodGraph
    owners: dict[str, str] = field(factory=dict)
    partitions: list[Partition] = field(factory=list)
    asked: list[str] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)
    book: LedgerBook = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.book = LedgerBook(self.graph.ops)

    def look_at(self, program: ExportedProgram) -> None:
        """Go on with another form of the program, in which owned nodes are called the same."""
        self.graph = MethodGraph(program, self.graph.method)
        self.book.ops = self.graph.ops

    def ask(self, plugin: Plugin) -> None:
        """Give one plugin its turn: ask for claims, settle conflicts, form its partitions."""
        self.asked.append(plugin.name)
        before = self.graph.fingerprint()
        answer = plugin.ask(
            "claim_nodes",
            program=self.graph.program,
            method=self.graph.method,
            taken=dict(self.owners),
        )
        if self.graph.fingerprint() != before:
            raise ClaimError(
                plugin.name,
                f"claim_nodes changed the graph of method {self.graph.method!r}",
                "look at the program, don't change it",
            )
        for claim in _as_claims(plugin, answer):
            self._record_refusals(plugin, claim)
            self._accept(plugin, claim)

    def ledger(self) -> Ledger:
        """The ledger so far."""
        return self.book.close(self.asked)

    def fallback(self) -> tuple[str, ...]:
        """Computing nodes that nobody owns."""
        ours = self.book.owners
        return tuple(n for n in self.graph.ops if n not in ours and n not in self.graph.foreign)

    def _record_refusals(self, plugin: Plugin, claim: Claim) -> None:
        for refusal in claim.refusals:
            if refusal.node not in self.graph.number:
                raise self._unknown(plugin, refusal.node, "refuses")
            self.book.say(refusal.node, plugin.name, refusal.code, refusal.text)

    def _accept(self, plugin: Plugin, claim: Claim) -> None:
        grouped: set[str] = set()
        groups = self._free_groups(plugin, claim, grouped)
        found = find_partitions(
            self.graph.inputs,
            [numbers for numbers, _ in groups],
            [[self.graph.number[name] for name in part.nodes] for part in self.partitions],
            claim.merge,
        )
        for index, blocker in found.torn.items():
            text = f"{self.graph.nodes[blocker].name} lies between its group's nodes"
            self._lose(plugin, groups[index][0], "convexity", text)
        for numbers, cause in zip(found.partitions, found.split_by, strict=True):
            self._own(plugin, claim, numbers, cause, grouped)

    def _free_groups(
        self, plugin: Plugin, claim: Claim, grouped: set[str]
    ) -> list[tuple[list[int], Group]]:
        """Groups that can still be had, whole and disjoint; `grouped` collects their constants."""
        found: list[tuple[list[int], Group]] = []
        home: dict[int, int] = {}
        for group in claim.groups:
            numbers = self._numbers(plugin, group, grouped)
            if not numbers or self._contested(plugin, numbers):
                continue
            overlap = sorted({home[number] for number in numbers if number in home})
            for other in overlap:
                numbers += found[other][0]
                found[other][0].clear()
            numbers = sorted(set(numbers))
            home.update(dict.fromkeys(numbers, len(found)))
            found.append((numbers, group))
        return [(numbers, group) for numbers, group in found if numbers]

    def _numbers(self, plugin: Plugin, group: Group, grouped: set[str]) -> list[int]:
        wanted = []
        for name in group.nodes:
            if name in self.graph.constants:
                grouped.add(name)
            elif name in self.graph.number:
                wanted.append(self.graph.number[name])
            else:
                raise self._unknown(plugin, name, "claims")
        numbers = self.graph.with_followers(wanted)
        if orphan := self.graph.orphan(numbers):
            source = self.graph.nodes[self.graph.inputs[self.graph.number[orphan.name]][0]]
            if source.name not in self.graph.foreign:
                text = f"{orphan.name} can't be had without {source.name}"
                self._lose(plugin, numbers, "group", text)
                return []
        return numbers

    def _contested(self, plugin: Plugin, numbers: list[int]) -> bool:
        """Whether somebody else has a node of a group; then the whole group is lost."""
        names = [self.graph.nodes[number].name for number in numbers]
        for name in names:
            if name in self.graph.foreign:
                self._lose(plugin, numbers, FOREIGN, f"{name} belongs to a delegate")
                return True
            if name in self.owners:
                owner = self.owners[name]
                whole = f"owned by {owner}" if len(names) == 1 else f"lost {name} to {owner}"
                self._lose(plugin, numbers, LOST, whole)
                return True
        return False

    def _lose(self, plugin: Plugin, numbers: Sequence[int], code: str, text: str) -> None:
        for number in numbers:
            name = self.graph.nodes[number].name
            if name in self.book.ops and self.owners.get(name) != plugin.name:
                self.book.say(name, plugin.name, code, text)

    def _own(
        self,
        plugin: Plugin,
        claim: Claim,
        numbers: Sequence[int],
        cause: int | None,
        grouped: set[str],
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
        )
        self.partitions.append(partition)
        for name in partition.nodes:
            self.owners[name] = plugin.name
            if name in self.book.ops:
                self.book.own(name, plugin.name, partition.name)

    def _constants(self, reads: Sequence[Node], grouped: set[str]) -> list[Constant]:
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
