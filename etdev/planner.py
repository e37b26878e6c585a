"""The planner: asks every plugin about one method and writes down what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.export import ExportedProgram

from etdev.constants import settle
from etdev.graph import MethodGraph
from etdev.partition import Partitioning
from etdev.placement import Placement
from etdev.plan import MethodPlan, Partition
from etdev.plugins import Plugin


def plan_method(
    program: ExportedProgram, method: str, plugins: Sequence[Plugin], placement: Placement
) -> MethodPlan:
    """Decide owner, constants and device of everything in one method.

    Args:
        program: Edge-dialect program of the method; it is not changed.
        method: Its name.
        plugins: Who is asked, in claim order.
        placement: Which devices are pinned.
    """
    partitioning = Partitioning(MethodGraph(program, method))
    for plugin in plugins:
        partitioning.ask(plugin)
    owners = {plugin.name: plugin for plugin in plugins}
    partitions = settle(
        partitioning.graph,
        partitioning.partitions,
        lambda part: owners[part.plugin].ask("claim_constants", program=program, partition=part),
    )
    return MethodPlan(
        method=method,
        partitions=tuple(_placed(program, part, owners, placement) for part in partitions),
        fallback=partitioning.fallback(),
        ledger=partitioning.ledger(),
    )


def _placed(
    program: ExportedProgram,
    partition: Partition,
    owners: Mapping[str, Plugin],
    placement: Placement,
) -> Partition:
    if pinned := placement.pinned(partition):
        return partition.on(pinned, "pinned")
    answer = owners[partition.plugin].ask("resolve_device", program=program, partition=partition)
    return placement.place(partition, answer)
