"""The planner: asks every plugin about one method and writes down what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field
from torch.export import ExportedProgram

from etdev.graph.expand import Expander
from etdev.graph.method import MethodGraph
from etdev.graph.order import delegates_of, run_order
from etdev.planner.constants import settle
from etdev.planner.copies import plan_copies
from etdev.planner.offers import Offer, View
from etdev.planner.partitioning import Partitioning
from etdev.planner.pinning import Pinning
from etdev.planner.placement import Placement, refuse_devices_in_branches, with_caveat
from etdev.planner.rules import Control
from etdev.registry.plugin import Plugin
from etdev.schema.ledger import Verdict
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan, Partition

# Ops that were kept whole, with the names of the plugins that wanted them so.
Whole = Mapping[str, Sequence[str]]
# What was said of nodes, by plugin.
Verdicts = dict[str, dict[str, Verdict]]


@define(eq=False)
class Planner:
    """Plans methods for a fixed list of plugins.

    Args:
        plugins: Who is asked, in claim order.
        placement: Which devices are pinned.
        expander: Decomposes what was kept whole for others.
        control: Pins and limits; who has planned all methods checks the rest of it.
        matched: The pins that matched a node of some method so far.
    """

    plugins: Sequence[Plugin]
    placement: Placement
    expander: Expander = field(factory=Expander)
    control: Control = field(factory=Control)
    matched: set[Pin] = field(factory=set)

    def plan(
        self, program: ExportedProgram, method: str, whole: Whole
    ) -> tuple[MethodPlan, ExportedProgram]:
        """Decide owner, constants and device of everything in one method.

        Args:
            program: Edge-dialect program of the method; it is not changed.
            method: Its name.
            whole: Ops that were kept whole, with the names of the plugins that wanted them so.

        Returns:
            The plan, and the program it is for: the ops that nobody took whole are decomposed.
        """
        refuse_devices_in_branches(program, method)
        pinning = Pinning(self.control.pins_of(method))
        pinning.look_at(program.graph)
        # The conversion may have dropped an op, or called its copy something else. And the wishes
        # of those who can't have an op don't count.
        there = {node.name for node in program.graph.nodes}
        whole = {name: pinning.allowed(name, whole[name]) for name in whole if name in there}
        left = self.expander.decomposable(program, [name for name in whole if not whole[name]])
        given_up: Verdicts = {}
        barred: Verdicts = {}
        while True:
            expanded = self.expander.expand(program, left)
            program = expanded.program
            pinning.look_at(program.graph, expanded.pieces)
            # Who gave up an op, as its partition was too small, is not to have its parts either.
            barred |= {p: given_up[op] for p, op in expanded.pieces.items() if op in given_up}
            whole = {name: wishers for name, wishers in whole.items() if name not in left}
            partitioning = Partitioning(MethodGraph(program, method), pinning, barred)
            self._partition(partitioning, program, whole)
            decided = partitioning.graph.program
            left = self.expander.decomposable(decided, _unowned(partitioning, whole))
            if not left:
                return self._finished(partitioning), decided
            # Whoever wanted these whole refused them in the end. Start again without the wish,
            # so that everybody gets to see their parts.
            given_up = partitioning.given_up

    def _partition(
        self, partitioning: Partitioning, program: ExportedProgram, whole: Whole
    ) -> None:
        """Every plugin in turn, each shown what it would be shown if it were alone.

        Ops that only others want whole are shown decomposed. An op of which somebody takes a part
        stays decomposed; whoever wanted it whole has lost it, and is asked again for the rest.
        """
        for plugin in self.plugins:
            unwished = [name for name, wishers in whole.items() if plugin.name not in wishers]
            torn = [name for name in partitioning.part_owners if plugin.name in whole[name]]
            view = self._view(partitioning, program, unwished)
            offers = partitioning.offers(plugin, view)
            if torn:
                view = self._view(partitioning, program, [*unwished, *torn])
                offers = partitioning.offers(plugin, view)
            self._accept(plugin, partitioning, program, view, offers)

    def _view(
        self, partitioning: Partitioning, program: ExportedProgram, unwished: Sequence[str]
    ) -> View:
        shown = self.expander.expand(program, self.expander.decomposable(program, unwished))
        graph = partitioning.graph
        if shown.program is not graph.program:
            graph = MethodGraph(shown.program, graph.method)
        return View(graph, shown.pieces)

    def _accept(
        self,
        plugin: Plugin,
        partitioning: Partitioning,
        program: ExportedProgram,
        view: View,
        offers: Sequence[Offer],
    ) -> None:
        owners = partitioning.part_owners
        claimed = {name for offer in offers for group in offer.groups for name in group}
        for name in view.parts.keys() & claimed:
            owners.setdefault(view.parts[name], plugin.name)
        partitioning.look_at(self.expander.expand(program, owners).program)
        partitioning.accept(plugin, offers, self.control.limits_of(plugin.name))
        if partitioning.put_back(plugin, view):
            partitioning.look_at(self.expander.expand(program, owners).program)

    def _finished(self, partitioning: Partitioning) -> MethodPlan:
        graph = partitioning.graph
        self.matched |= partitioning.pinning.matched(graph.ops)
        owners = {plugin.name: plugin for plugin in self.plugins}
        partitions = settle(
            graph,
            partitioning.finished(),
            lambda part: owners[part.plugin].ask(
                "claim_constants", program=graph.program, partition=part
            ),
        )
        placed = [self._placed(graph.program, part, owners) for part in partitions]
        order = run_order(graph.program.graph, placed)
        ours = [placed[unit] for unit in order if isinstance(unit, int)]
        return MethodPlan(
            method=graph.method,
            partitions=tuple(ours),
            delegates=tuple(delegates_of(order, placed)),
            copies=plan_copies(graph, ours),
            fallback=partitioning.fallback(),
            ledger=partitioning.ledger(),
        )

    def _placed(
        self, program: ExportedProgram, partition: Partition, owners: Mapping[str, Plugin]
    ) -> Partition:
        owner = owners[partition.plugin]
        if pinned := self.placement.pinned(partition):
            placed = partition.on(pinned, "pinned")
        else:
            answer = owner.ask("resolve_device", program=program, partition=partition)
            placed = self.placement.place(partition, answer)
        caveat = owner.ask("device_caveat", program=program, partition=placed)
        return with_caveat(placed, caveat)


def _unowned(partitioning: Partitioning, whole: Whole) -> list[str]:
    known = partitioning.graph.number
    return [name for name in whole if name in known and name not in partitioning.owners]
