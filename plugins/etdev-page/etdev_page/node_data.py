"""The view `node-data` of etdev: colours and values of a plan's nodes for Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.errors import ArtifactError, EtdevError
from etdev.files import check_writable, publish, unseen, unwritable, write_text
from etdev.schema.ledger import Entry, together
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Call, Profile
from etdev_page.colours import NEUTRAL, colours_of

if TYPE_CHECKING:
    from etdev.cli.viewing import Viewed

# Colours of a node's time, from none to the most.
_QUICK, _SLOW = "#ffffff", "#d55e00"

NodeData = dict[str, dict[str, Any]]


def check(folder: Path) -> None:
    """Check that the folder can be written.

    Raises:
        EtdevError: It can't be written.
    """
    check_writable(folder / "owner.json" if folder.is_dir() else folder)


def write(folder: Path, viewed: Viewed) -> None:
    """Write a file for each set of node data, all of them or none.

    Raises:
        EtdevError: The .pte holds no ledger, or the folder or a file can't be written.
    """
    if viewed.note:
        raise ArtifactError(viewed.title, "holds no ledger", "lower it with --with-ledger")
    is_new = not folder.is_dir()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        with unseen(folder / "owner.json") as hidden:
            for name, data in node_data(viewed.plan, viewed.profile).items():
                write_text(hidden / f"{name}.json", json.dumps(data))
            publish(hidden.iterdir(), folder / "owner.json")
    except EtdevError:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def node_data(plan: Plan, profile: Profile | None = None) -> dict[str, NodeData]:
    """Return Model Explorer's node data: one set each for owners, devices, reasons and times.

    A set has a graph for each method, and a graph has its name and the results by node. Each node
    stands under its own name and under the one that an ETRecord's graph has for it; with a profile
    there are also results by instruction, as the graph of a .pte names them.

    Args:
        plan: The plan.
        profile: A profile of the plan's .pte, which adds the times. A node of a partition has the
            time of the whole partition.
    """
    colours = colours_of(name for name, _ in plan.plugins)
    data: dict[str, NodeData] = {
        name: {m.method: {"name": f"etdev {name}", "results": {}} for m in plan.methods}
        for name in ("owner", "device", "reason")
    }
    for method in plan.methods:
        devices = {partition.name: str(partition.device) for partition in method.partitions}
        for entry in method.ledger:
            values = {
                "owner": entry.partition or entry.holder,
                "device": devices.get(entry.partition or "", "cpu"),
                "reason": together(entry.reasons),
            }
            colour = colours.get(entry.holder, NEUTRAL)
            for name, value in values.items():
                result = {"value": value, "bgColor": colour}
                data[name][method.method]["results"].update(_named(entry, result))
    if profile:
        _add_profile(data, plan[profile.method], profile)
    return data


def _add_profile(data: dict[str, NodeData], method: MethodPlan, profile: Profile) -> None:
    results: dict[str, Any] = {}
    for entry in method.ledger:
        if (ms := profile.times.get(entry.partition or entry.node)) is not None:
            results.update(_named(entry, {"value": ms}))
    gradient = [{"stop": 0, "bgColor": _QUICK}, {"stop": 1, "bgColor": _SLOW}]
    times = {"name": "etdev time (ms)", "results": results, "gradient": gradient}
    sets = [graphs[method.method]["results"] for graphs in data.values()]
    for call in profile.calls:
        key = f"{method.method}_{call.chain}_{call.index}"
        node = _computed(call, method)
        for known in sets if node else ():
            known[key] = known[node]
        results[key] = {"value": call.ms}
    data["time"] = {method.method: times}


def _computed(call: Call, method: MethodPlan) -> str | None:
    """Return a node that an instruction computes."""
    op = call.name.partition(".")[0].replace("::", ".")
    nodes = (
        entry.node
        for entry in method.ledger
        if entry.partition == call.name or (entry.falls_back and entry.op.rpartition(".")[0] == op)
    )
    return next(nodes, None)


def _named(entry: Entry, result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    # ExecuTorch's extension of Model Explorer names the node of an ETRecord with an underscore.
    return {entry.node: result, f"{entry.node}_": result}
