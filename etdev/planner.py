"""The planner: asks every plugin about one method and writes down what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field
from torch.export import ExportedProgram

from etdev.constants import settle
from etdev.copies import plan_copies
from etdev.expand import Expander
from etdev.graph import MethodGraph
from etdev.ledger import PARTS
from etdev.order import delegates_of, run_order
from etdev.partition import Offer, Partitioning, View
from etdev.placement import Placement, refuse_devices_in_branches, with_caveat
from etdev.plan import MethodPlan, Partition
from etdev.plugin import Plugin

# Ops that were kept whole, with the names of the plugins that wanted them so.
Whole = Mapping[str, Sequence[str]]


@define(eq=False)
class Planner:
    """Plans methods for a fixed list of plugins.

    Args:
        plugins: Who is asked, in claim order.
        placement: Which devices are pinned.
        expander: Decomposes what was kept whole for others.
    """

    plugins: Sequence[Plugin]
    placement: Placement
    expander: Expander = field(factory=Expander)

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
        # The conversion may have dropped an op, or called its copy something else.
        there = {node.name for node in program.graph.nodes}
        whole = {name: wishers for name, wishers in whole.items() if name in there}
        while True:
            partitioning = self._partitioned(program, method, whole)
            decided = partitioning.graph.program
            left = self.expander.decomposable(decided, _unowned(partitioning, whole))
            if not left:
                return self._finished(partitioning), decided
            # Whoever wanted these whole refused them in the end. Start again without the wish,
            # so that everybody gets to see their parts.
            program = self.expander.expand(program, left).program
            whole = {name: wishers for name, wishers in whole.items() if name not in left}

    def _partitioned(self, program: ExportedProgram, method: str, whole: Whole) -> Partitioning:
        """Every plugin in turn, each shown what it would be shown if it were alone.

        Ops that only others want whole are shown decomposed. An op of which somebody takes a part
        stays decomposed; whoever wanted it whole has lost it, and is asked again for the rest.
        """
        partitioning = Partitioning(MethodGraph(program, method))
        for plugin in self.plugins:
            unwished = [name for name, wishers in whole.items() if plugin.name not in wishers]
            torn = [name for name in partitioning.part_owners if plugin.name in whole[name]]
            view = self._view(partitioning, program, unwished)
            offers = partitioning.offers(plugin, view)
            if torn:
                view = self._view(partitioning, program, [*unwished, *torn])
                offers = partitioning.offers(plugin, view)
            self._accept(plugin, partitioning, program, view, offers)
        return partitioning

    def _view(
        self, partitioning: Partitioning, program: ExportedProgram, unwished: Sequence[str]
    ) -> View:
        shown = self.expander.expand(program, self.expander.decomposable(program, unwished))
        graph = partitioning.graph
        if shown.program is not graph.program:
            graph = MethodGraph(shown.program, graph.method)
        return View(graph, shown.parts)

    def _accept(
        self,
        plugin: Plugin,
        partitioning: Partitioning,
        program: ExportedProgram,
        view: View,
        offers: Sequence[Offer],
    ) -> None:
        claimed = {name for offer in offers for group in offer.groups for name in group}
        for name in view.parts.keys() & claimed:
            partitioning.part_owners.setdefault(view.parts[name], plugin.name)
        partitioning.look_at(self.expander.expand(program, partitioning.part_owners).program)
        for offer in offers:
            partitioning.accept(plugin, offer)
        for name in set(view.parts.values()) - partitioning.part_owners.keys():
            if name not in partitioning.owners:
                partitioning.book.say(name, plugin.name, PARTS, "it took none of its parts")

    def _finished(self, partitioning: Partitioning) -> MethodPlan:
        graph = partitioning.graph
        owners = {plugin.name: plugin for plugin in self.plugins}
        partitions = settle(
            graph,
            partitioning.partitions,
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
