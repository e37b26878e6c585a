"""Node data: a plan as colours and values on the graphs that Model Explorer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan, Plan

# Told apart by people who don't see red or green, too.
_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442")
_PORTABLE = "#bbbbbb"
# ExecuTorch's extension calls a node of an ETRecord so.
_ETRECORD = "{}_"

NodeData = dict[str, dict[str, Any]]


def node_data(plan: Plan) -> dict[str, NodeData]:
    """What Model Explorer reads as node data: one set for owners, one for devices, one for reasons.

    Each set has a graph for each method, and each graph the name of the set and its results by
    node, under the node's own name and under that which an ETRecord's graph gives it.
    """
    plugins = [name for name, _ in plan.plugins]
    colours = dict(zip(plugins, _cycled(), strict=False))
    sets: dict[str, Callable[[MethodPlan], Mapping[str, str]]] = {
        "owner": _owners,
        "device": _devices,
        "reason": _reasons,
    }
    return {
        name: {
            method.method: {
                "name": f"etdev {name}",
                "results": dict(_results(method, tell(method), colours)),
            }
            for method in plan.methods
        }
        for name, tell in sets.items()
    }


def _results(
    method: MethodPlan, values: Mapping[str, str], colours: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    for entry in method.ledger:
        colour = colours.get(entry.owner or "", _PORTABLE)
        result = {"value": values[entry.node], "bgColor": colour}
        yield entry.node, result
        yield _ETRECORD.format(entry.node), result


def _owners(method: MethodPlan) -> dict[str, str]:
    return {entry.node: entry.partition or entry.holder for entry in method.ledger}


def _devices(method: MethodPlan) -> dict[str, str]:
    devices = {partition.name: str(partition.device) for partition in method.partitions}
    return {entry.node: devices.get(entry.partition or "", "cpu") for entry in method.ledger}


def _reasons(method: MethodPlan) -> dict[str, str]:
    return {entry.node: _reason(entry) for entry in method.ledger}


def _reason(entry: Entry) -> str:
    said = [f"{verdict.plugin}: {verdict.text or verdict.code}" for verdict in entry.verdicts]
    return "; ".join(said) or "no plugin was asked"


def _cycled() -> Iterator[str]:
    while True:
        yield from _COLOURS
