"""The planner, which asks every plugin about one method and writes down what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram

from etdev.graph.expand import Expander
from etdev.graph.method import MethodGraph, run_order
from etdev.graph.precision import precisions
from etdev.graph.rebuild import simplified_in
from etdev.planner.boundary_copies import plan_conversions, plan_copies
from etdev.planner.constants import settle
from etdev.planner.forms import Forms
from etdev.planner.partitioning import Partitioning, Verdicts
from etdev.planner.pinning import Pinning
from etdev.planner.placement import place, refuse_devices_in_branches, with_caveats
from etdev.planner.reporter import verdict_of
from etdev.registry import answers
from etdev.registry.calls import untouched
from etdev.registry.plugin import Plugin
from etdev.schema import reasons
from etdev.schema.device import for_method
from etdev.schema.options import Options
from etdev.schema.partition import Draft, Partition
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import SharedState


@define(eq=False)
class Planner:
    """A planner of methods for a fixed list of plugins, in claim order.

    The caller checks the plans of all methods against the settings.
    """

    plugins: Sequence[Plugin]
    options: Options = field(factory=Options)
    expander: Expander = field(factory=Expander)
    # The pins that matched a node of some method so far.
    matched: set[Pin] = field(factory=set)
    # By method, verdicts on nodes that a plugin can't have.
    barred: Mapping[str, Verdicts] = field(factory=dict)
    # State that several methods share, which no delegate may own.
    shared: Sequence[SharedState] = ()

    def plan(
        self, program: ExportedProgram, method: str, whole: Mapping[str, Sequence[str]]
    ) -> tuple[MethodPlan, ExportedProgram]:
        """Decide owner, constants and device of everything in one method.

        The edge-dialect program is not changed. `whole` has the ops that were kept whole, with the
        plugins that wanted them so.

        Returns:
            The plan, and the program it is for, in which unclaimed ops are decomposed. The caller
            refuses nodes without an owner.
        """
        refuse_devices_in_branches(program, method)
        pinning = Pinning([pin for pin in self.options.pins if pin.method in (None, method)])
        forms = Forms(program, method, dict(whole), self.expander, pinning)
        config = self.expander.compile_config
        partitioning = Partitioning(forms, config, self.barred.get(method, {}))
        # Every plugin is asked in turn; earlier ones have what they claimed.
        partitioning = self._asked(partitioning, method)
        # Unclaimed nodes are decomposed where that is possible, and all plugins are asked again
        # about the pieces.
        while unclaimed := partitioning.unclaimed():
            again = partitioning.again(forms.decompose(unclaimed))
            partitioning = self._asked(again, method)
        partitioning.resort()
        graph = partitioning.graph
        self.matched |= pinning.matched(graph.ops)
        partitions = self._settled(graph, partitioning.drafts)
        each = precisions(graph, {name: own.name for own in partitions for name in own.nodes})
        ledger = partitioning.reporter.ledger(graph, self.plugins, pinning, each)
        # Delegates are listed in the order of their first calls in the .pte.
        order = run_order(graph.program.graph, partitions)
        units = [partitions[unit] if isinstance(unit, int) else unit for unit in order]
        ordered = tuple(unit for unit in units if isinstance(unit, Partition))
        plan = MethodPlan(
            method=method,
            partitions=ordered,
            delegates=tuple(
                unit.name
                for unit in units
                if isinstance(unit, Partition) or unit.target is executorch_call_delegate
            ),
            copies=plan_copies(graph, ordered),
            fallback=tuple(entry.node for entry in ledger if entry.falls_back),
            ledger=ledger,
            simplified=dict(simplified_in(graph.program)),
            conversions=plan_conversions(graph, ordered),
            interface=graph.interface(),
        )
        return plan, graph.program

    def _asked(self, partitioning: Partitioning, method: str) -> Partitioning:
        """Ask every plugin, and all again as long as one tears a pattern that another has whole."""
        for plugin in self.plugins:
            methods = plugin.limits.methods
            if methods is None or method in methods:
                partitioning.ask(plugin)
            else:
                verdict = verdict_of(plugin.name, reasons.NOT_ASKED)
                partitioning.reporter.lost(partitioning.graph.ops, verdict)
        untorn = partitioning.untorn()
        return self._asked(untorn, method) if untorn else partitioning

    def _settled(self, graph: MethodGraph, drafts: Sequence[Draft]) -> list[Partition]:
        """Ask owners which constants travel inside their delegates, then where these run."""
        owners = {plugin.name: plugin for plugin in self.plugins}
        asked = [owners[draft.plugin] for draft in drafts]
        program, method, placed = graph.program, graph.method, list[Partition]()
        with untouched(asked, "claim_constants", program, method):
            partitions = settle(
                graph,
                drafts,
                lambda draft: answers.claim_constants(owners[draft.plugin], program, draft),
                {name.get(method) for s in self.shared for name in (s.targets, s.flags)},
            )
        with (
            untouched(asked, "device_caveat", program, method),
            untouched(asked, "resolve_device", program, method),
        ):
            for owner, partition in zip(asked, partitions, strict=True):
                devices = self.options.devices.get(partition.plugin, {})
                pinned = for_method(devices, method)
                answer = None if pinned else answers.resolve_device(owner, program, partition)
                placed.append(place(partition, pinned, answer, self.options.strict))
            caveats = [
                answers.device_caveat(owner, program, partition)
                for owner, partition in zip(asked, placed, strict=True)
            ]
        return with_caveats(placed, caveats, self.options.strict)
