"""Node data: a plan as colours and values on the graphs that Model Explorer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Call, Profile
from etdev.schema.report.colours import NEUTRAL, colours_of

# ExecuTorch's extension calls a node of an ETRecord so.
_ETRECORD = "{}_"

# Of the time of a node, from none to the most.
_QUICK, _SLOW = "#ffffff", "#d55e00"

NodeData = dict[str, dict[str, Any]]


def node_data(plan: Plan, profile: Profile | None = None) -> dict[str, NodeData]:
    """What Model Explorer reads as node data: sets for owners, devices, reasons and times.

    Each set has a graph for each method, and each graph the name of the set and its results by
    node, under the node's own name and under that which an ETRecord's graph gives it; of a profile
    also by instruction, as the graph of a .pte names them.

    Args:
        plan: The plan.
        profile: A profile of a .pte of it; there is no set of times without one. A node of a
            partition has the time of all of it.
    """
    owners = colours_of((name for name, _ in plan.plugins), ())
    sets: dict[str, Callable[[MethodPlan], Mapping[str, Any]]] = {
        "owner": _owners,
        "device": _devices,
        "reason": _reasons,
    }
    data: dict[str, NodeData] = {
        name: {
            method.method: {
                "name": f"etdev {name}",
                "results": dict(_results(method, tell(method), owners)),
            }
            for method in plan.methods
        }
        for name, tell in sets.items()
    }
    if profile is None:
        return data
    method = plan[profile.method]
    data["time"] = {method.method: _times(method, profile)}
    for call in profile.calls:
        for name, result in _called(call, method, data).items():
            key = f"{method.method}_{call.chain}_{call.index}"
            data[name][method.method]["results"][key] = result
    return data


def _called(
    call: Call, method: MethodPlan, data: Mapping[str, NodeData]
) -> dict[str, dict[str, Any]]:
    """The results of an instruction, by set: those of a node that it computes."""
    op = call.name.partition(".")[0].replace("::", ".")
    computed = (
        entry.node
        for entry in method.ledger
        if entry.partition == call.name or (entry.falls_back and entry.op.rpartition(".")[0] == op)
    )
    node = next(computed, None)
    known = {name: data[name][method.method]["results"] for name in data if name != "time"}
    told = {name: results[node] for name, results in known.items()} if node else {}
    return {**told, "time": {"value": call.ms}}


def _results(
    method: MethodPlan, values: Mapping[str, Any], owners: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for entry in method.ledger:
        colour = owners.get(entry.holder, NEUTRAL)
        yield from _named(entry, {"value": values[entry.node], "bgColor": colour})


def _named(entry: Entry, result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield entry.node, result
    yield _ETRECORD.format(entry.node), result


def _times(method: MethodPlan, profile: Profile) -> dict[str, Any]:
    return {
        "name": "etdev time (ms)",
        "results": dict(_timed(method, profile.times)),
        "gradient": [{"stop": 0, "bgColor": _QUICK}, {"stop": 1, "bgColor": _SLOW}],
    }


def _timed(
    method: MethodPlan, times: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, float]]]:
    for entry in method.ledger:
        if (ms := times.get(entry.partition or entry.node)) is not None:
            yield from _named(entry, {"value": ms})


def _owners(method: MethodPlan) -> dict[str, str]:
    return {entry.node: entry.partition or entry.holder for entry in method.ledger}


def _devices(method: MethodPlan) -> dict[str, str]:
    devices = {partition.name: str(partition.device) for partition in method.partitions}
    return {entry.node: devices.get(entry.partition or "", "cpu") for entry in method.ledger}


def _reasons(method: MethodPlan) -> dict[str, str]:
    return {entry.node: _reason(entry) for entry in method.ledger}


def _reason(entry: Entry) -> str:
    said = [f"{verdict.plugin}: {verdict.text or verdict.code}" for verdict in entry.reasons]
    return "; ".join(said) or "no plugin was asked"
