"""From claims to partitions: who gets which nodes of one method, in which partitions."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import ClaimError
from etdev.graph.convex import find_partitions
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import describe, fingerprint
from etdev.planner.offers import Draft, Offer, Offering, View
from etdev.planner.pinning import Pinning
from etdev.registry.plugin import Plugin
from etdev.schema.ledger import PARTS, PINNED, Ledger, LedgerBook, Verdict
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import Partition
from etdev.schema.tensors import Constant, Tensor


@define(eq=False)
class Partitioning:
    """The partitions of one method while they are being decided, plugin by plugin.

    Args:
        graph: The method as it is decided so far.
        pinning: Which nodes are pinned; it has seen the method.
        barred: Verdicts by plugin on the parts of ops that it gave up.
        owners: Owner of each node that has one.
        homes: Name of the partition of each of these.
        part_owners: For each op that is decomposed because of it, who took the first part.
        given_up: Verdicts by plugin on nodes that it could have had, but for its limits.
    """

    graph: MethodGraph
    pinning: Pinning
    barred: Mapping[str, Mapping[str, Verdict]] = field(factory=dict)
    owners: dict[str, str] = field(factory=dict)
    homes: dict[str, str] = field(factory=dict)
    part_owners: dict[str, str] = field(factory=dict)
    given_up: dict[str, dict[str, Verdict]] = field(factory=dict)
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
        self.pinning.look_at(view.graph.program.graph, view.parts)
        names = [node.name for node in view.graph.nodes]
        gone = {name: owner for name in names if (owner := self._owner(view, name))}
        against = self.pinning.against(plugin.name)
        pinned = {name: against[name].plugin for name in names if name in against}
        homes = {name: f"pinned_{_op(view.graph, name)}" for name in pinned.keys() - gone.keys()}
        homes |= {name: home for name in gone if (home := self._home(view, name))}
        answer = self._ask(plugin, view.graph, {**pinned, **gone}, homes)
        return Offering(plugin, view, gone, self._barred(plugin, against), self.book).offers(answer)

    def accept(self, plugin: Plugin, offers: Sequence[Offer], limits: Limits) -> None:
        """Form partitions of what a plugin can have, in the program as it is now.

        Those that don't come up to its limits are given up.
        """
        drafts: list[Draft] = []
        for offer in offers:
            drafts += self._drafts(plugin, offer, drafts)
        begun = set()
        for draft, refusal in zip(drafts, self._refusals(drafts, limits), strict=True):
            if refusal:
                self._give_up(plugin, draft, Verdict(plugin.name, *refusal))
            else:
                # The first that is left has no earlier one that it could be one with.
                self._own(plugin, draft, draft.split_by if draft.offer in begun else None)
                begun.add(draft.offer)

    def put_back(self, plugin: Plugin, view: View) -> bool:
        """Make ops whole again of which a plugin claimed parts and got none; whether there are any.

        Others may have them. The ledger tells of every op of which it has no part.
        """
        had = {view.parts[name] for name in view.parts.keys() & self.owners.keys()}
        claimed = [name for name, owner in self.part_owners.items() if owner == plugin.name]
        back = [name for name in claimed if name not in had]
        for name in back:
            del self.part_owners[name]
        given_up = {
            view.parts[part]: said[plugin.name]
            for part, said in self.given_up.items()
            if part in view.parts and plugin.name in said
        }
        for name in set(view.parts.values()) - self.part_owners.keys() - self.owners.keys():
            if verdict := given_up.get(name):
                self.book.say(name, plugin.name, verdict.code, verdict.text)
            elif self.pinning.allowed(name, [plugin.name]):
                self.book.say(name, plugin.name, PARTS, "it took none of its parts")
        return bool(back)

    def finished(self) -> list[Partition]:
        """The partitions, with their outputs in the program as it was decided in the end."""
        # An op reads values of which its parts only need the shapes, and the other way round.
        return [evolve(part, outputs=self._outputs(part)) for part in self.partitions]

    def ledger(self) -> Ledger:
        """The ledger so far."""
        pins = ((name, self.pinning.pin(name)) for name in self.graph.ops)
        self.book.modules = self.graph.modules
        self.book.pins = {name: pin for name, pin in pins if pin}
        return self.book.close(self.asked)

    def fallback(self) -> tuple[str, ...]:
        """Computing nodes that nobody owns."""
        ours = self.book.owners
        return tuple(n for n in self.graph.ops if n not in ours and n not in self.graph.foreign)

    def _ask(
        self, plugin: Plugin, graph: MethodGraph, taken: dict[str, str], partitions: dict[str, str]
    ) -> Any:
        program, method = graph.program, graph.method
        before = fingerprint(program.graph)
        answer = plugin.ask(
            "claim_nodes", program=program, method=method, taken=taken, partitions=partitions
        )
        if fingerprint(program.graph) != before:
            raise ClaimError(
                plugin.name,
                f"claim_nodes changed the graph of method {method!r}",
                "look at the program, don't change it",
            )
        return answer

    def _owner(self, view: View, name: str) -> str | None:
        """Who has a node of a view, or a part of it, or the op that it is a part of."""
        return (
            self.owners.get(name)
            or self.owners.get(view.parts.get(name, ""))
            or self.part_owners.get(name)
        )

    def _home(self, view: View, name: str) -> str | None:
        """The partition that has a node of a view, or the op that it is a part of."""
        return self.homes.get(name) or self.homes.get(view.parts.get(name, ""))

    def _barred(self, plugin: Plugin, against: Mapping[str, Pin]) -> dict[str, Verdict]:
        """Nodes that a plugin can't have, whether or not anybody has them."""
        barred = {name: said for name, said in self.barred.items() if plugin.name in said}
        found = {name: said[plugin.name] for name, said in barred.items()}
        for name, pin in against.items():
            found[name] = Verdict(plugin.name, PINNED, f"pinned by {pin}")
        return found

    def _drafts(self, plugin: Plugin, offer: Offer, before: Sequence[Draft]) -> list[Draft]:
        number = self.graph.number
        owned = [[number[name] for name in part.nodes] for part in self.partitions]
        found = find_partitions(
            self.graph.inputs,
            [[number[name] for name in group] for group in offer.groups],
            [*owned, *(draft.numbers for draft in before)],
            offer.claim.merge,
        )
        for index, blocker in found.torn.items():
            text = f"{self.graph.nodes[blocker].name} lies between its group's nodes"
            self.book.say_all(offer.groups[index], plugin.name, "convexity", text)
        causes = [None if at is None else self.graph.nodes[at].name for at in found.split_by]
        return [
            Draft(offer, numbers, cause)
            for numbers, cause in zip(found.partitions, causes, strict=True)
        ]

    def _refusals(
        self, drafts: Sequence[Draft], limits: Limits
    ) -> Sequence[tuple[str, str] | None]:
        sizes = [sum(self.graph.nodes[n].name in self.book.ops for n in d.numbers) for d in drafts]
        return limits.refusals(
            [(size, d.numbers[0]) for size, d in zip(sizes, drafts, strict=True)]
        )

    def _give_up(self, plugin: Plugin, draft: Draft, verdict: Verdict) -> None:
        names = [self.graph.nodes[number].name for number in draft.numbers]
        self.book.say_all(names, plugin.name, verdict.code, verdict.text)
        for name in names:
            self.given_up.setdefault(name, {})[plugin.name] = verdict

    def _own(self, plugin: Plugin, draft: Draft, split_by: str | None) -> None:
        mine = self.counts[plugin.name]
        self.counts[plugin.name] += 1
        claim = draft.offer.claim
        partition = Partition(
            name=f"{plugin.name}_{mine}",
            method=self.graph.method,
            plugin=plugin.name,
            backend_id=claim.backend_id,
            nodes=tuple(self.graph.nodes[number].name for number in draft.numbers),
            constants=tuple(
                self._constants(self.graph.reads(draft.numbers), draft.offer.constants)
            ),
            device_types=claim.device_types,
            named_data=claim.named_data,
            compile_specs=claim.compile_specs,
            split_by=split_by,
            compiler=claim.compiler,
        )
        self.partitions.append(partition)
        for name in partition.nodes:
            self.owners[name] = plugin.name
            self.homes[name] = partition.name
            if name in self.book.ops:
                self.book.own(name, plugin.name, partition.name)

    def _outputs(self, partition: Partition) -> tuple[Tensor, ...]:
        numbers = [self.graph.number[name] for name in partition.nodes]
        return tuple(describe(node) for node in self.graph.outputs(numbers))

    def _constants(self, reads: Sequence[Node], grouped: Container[str]) -> list[Constant]:
        known = self.graph.constants
        return [
            evolve(known[node.name], grouped=node.name in grouped)
            for node in reads
            if node.name in known
        ]


def _op(graph: MethodGraph, name: str) -> str:
    """The node itself, or the op that a getitem reads."""
    node = graph.nodes[graph.number[name]]
    return node.all_input_nodes[0].name if node.target is operator.getitem else name
