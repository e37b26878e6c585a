"""The view `node-data` of etdev: colours and values of a plan's nodes for Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.app import files
from etdev.errors import ArtifactError, EtdevError
from etdev.schema.ledger import Entry, together
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Instruction, Profile
from etdev.schema.reasons import FOREIGN
from etdev_page.colours import colours_of, ink_on
from etdev_page.hot import op_of

if TYPE_CHECKING:
    from etdev.cli.viewing import Viewed

_SETS = ("owner", "device", "reason", "time")
# Colours of a node's time, from none to the most.
_QUICK, _SLOW = "#ffffff", "#d55e00"
# What the adapter for .pt2 files calls its only graph.
_EXPORTED = "graph"

NodeData = dict[str, dict[str, Any]]


def check(folder: Path) -> None:
    """Check that the folder can be written.

    Raises:
        EtdevError: It can't be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ArtifactError(str(folder), "is a file", "name a folder")
    for file in [folder / f"{name}.json" for name in _SETS] if folder.is_dir() else [folder]:
        files.check_writable(file)


def write(folder: Path, viewed: Viewed) -> None:
    """Write a file for each set of node data, all of them or none.

    Raises:
        EtdevError: The .pte holds no ledger, or the folder or a file can't be written.
    """
    if viewed.note:
        raise ArtifactError(viewed.title, "holds no ledger", "lower it without --no-ledger")
    is_new = not folder.is_dir()
    with files.writing(folder):
        folder.mkdir(exist_ok=True)
    try:
        with files.unseen(folder / "owner.json") as hidden:
            for name, data in node_data(viewed.plan, viewed.profile).items():
                files.write_text(hidden / f"{name}.json", json.dumps(data))
            files.publish(hidden.iterdir(), folder / "owner.json")
    except EtdevError:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def node_data(plan: Plan, profile: Profile | None = None) -> dict[str, NodeData]:
    """Return Model Explorer's node data: one set each for owners, devices, reasons and times.

    A set has the graphs by the names that Model Explorer's adapters give them, and a graph has its
    name and the results by node. An ETRecord and a .pte have a graph for each method, with the
    nodes of the plan and, with a profile, the instructions of the .pte. A .pt2 has the graph
    `graph` with the nodes of the exported program; one may be several nodes of the plan.

    Args:
        plan: The plan.
        profile: A profile of the plan's .pte, which adds the times. A node of a partition has the
            time of the whole partition.
    """
    colours = colours_of(name for name, _ in plan.plugins)
    data: dict[str, NodeData] = {}
    for method in plan.methods:
        times = profile.times if profile and profile.method == method.method else {}
        for graph, nodes in _graphs(plan, method).items():
            for node, entries in nodes.items():
                for name, result in _results(method, entries, times, colours).items():
                    graphs = data.setdefault(name, {})
                    graphs.setdefault(graph, _graph(name))["results"][node] = result
    if profile:
        _add_instructions(data, plan[profile.method], profile)
    return data


def _graph(name: str) -> dict[str, Any]:
    if name != "time":
        return {"name": f"etdev {name}", "results": {}}
    ends = ((0, _QUICK), (1, _SLOW))
    gradient = [{"stop": stop, "bgColor": colour} for stop, colour in ends]
    return {"name": "etdev time (ms)", "results": {}, "gradient": gradient}


def _graphs(plan: Plan, method: MethodPlan) -> dict[str, dict[str, list[Entry]]]:
    """Return the entries of each node of the graphs that adapters show of a method."""
    # The adapter of ETRecords writes an underscore after some of the names.
    edge = {f"{e.node}{end}": [e] for e in method.ledger for end in ("", "_")}
    exported: dict[str, list[Entry]] = {}
    for entry in method.ledger:
        if entry.source and len(plan.methods) == 1:
            exported.setdefault(entry.source, []).append(entry)
    return {method.method: edge, **({_EXPORTED: exported} if exported else {})}


def _results(
    method: MethodPlan,
    entries: Sequence[Entry],
    times: Mapping[str, float],
    colours: Mapping[str, str],
) -> dict[str, Any]:
    """Return the results of a node that the plan has as one entry or more, by set."""
    devices = {partition.name: str(partition.device) for partition in method.partitions}
    values = {
        "owner": [entry.partition or entry.holder for entry in entries],
        "device": [devices.get(entry.partition or "", "cpu") for entry in entries],
        "reason": [together(entry.reasons) for entry in entries],
    }
    holders = [entry.holder for entry in entries]
    colour = colours.get(PORTABLE if PORTABLE in holders else holders[0], colours[FOREIGN.code])
    style = {"bgColor": colour, "textColor": ink_on(colour)}
    results: dict[str, Any] = {
        name: {"value": "; ".join(dict.fromkeys(texts)), **style} for name, texts in values.items()
    }
    timed = {entry.partition or entry.node for entry in entries} & times.keys()
    if timed:
        results["time"] = {"value": sum(times[name] for name in sorted(timed))}
    return results


def _add_instructions(data: dict[str, NodeData], method: MethodPlan, profile: Profile) -> None:
    """Add the instructions of the .pte, as Model Explorer's adapter for it names them."""
    times = data.setdefault("time", {}).setdefault(method.method, _graph("time"))["results"]
    sets = [graphs[method.method]["results"] for name, graphs in data.items() if name != "time"]
    for step in profile.instructions:
        key = f"{method.method}_{step.chain}_{step.index}"
        node = _computed(step, method)
        for known in sets if node else ():
            known[key] = known[node]
        times[key] = {"value": step.ms}


def _computed(step: Instruction, method: MethodPlan) -> str | None:
    """Return a node that an instruction computes."""
    op = op_of(step.name)
    nodes = (
        entry.node
        for entry in method.ledger
        if entry.partition == step.name or (entry.falls_back and entry.op.rpartition(".")[0] == op)
    )
    return next(nodes, None)
