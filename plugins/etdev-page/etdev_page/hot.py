"""Hot list of a profile: its delegates, portable nodes and kernels, the slowest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etdev.schema.ledger import together
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Cost, Profile


def hot(plan: Plan, profile: Profile) -> list[dict[str, Any]]:
    """Return a row for each delegate and portable node that has a time, and for the other costs.

    A row has the name, the milliseconds, the share of a run, the owner and, for what no plugin
    owns, the reasons. Calls that can't be matched with nodes are one row by kernel.
    """
    method = next((method for method in plan.methods if method.method == profile.method), None)
    rows = [*(_nodes(method, profile) if method else ()), *_others(method, profile)]
    total = profile.ms or 1.0
    shown = [{**row, "share": row["ms"] / total} for row in rows]
    return sorted(shown, key=lambda row: -float(row["ms"]))


def op_of(kernel: str) -> str:
    """Return the op of a kernel without its overload: `aten.add` for `aten::add.out`."""
    return kernel.partition(".")[0].replace("::", ".")


def _nodes(method: MethodPlan, profile: Profile) -> Iterator[dict[str, Any]]:
    for partition in method.partitions:
        if (ms := profile.times.get(partition.name)) is not None:
            yield _row(partition.name, ms, partition.plugin)
    for entry in method.ledger:
        ms = profile.times.get(entry.node)
        if entry.partition is None and ms is not None:
            yield _row(entry.node, ms, entry.holder, together(entry.reasons))


def _others(method: MethodPlan | None, profile: Profile) -> Iterator[dict[str, Any]]:
    timed = (entry for entry in (method.ledger if method else ()) if entry.node in profile.times)
    known = {entry.op.rpartition(".")[0] for entry in timed} | set(profile.times)
    for cost in profile.costs:
        if cost.name not in known and op_of(cost.name) not in known:
            yield _row(_called(cost), cost.ms, cost.plugin, "; ".join(cost.reasons))


def _called(cost: Cost) -> str:
    return cost.name if cost.calls == 1 else f"{cost.name} ({cost.calls} calls)"


def _row(name: str, ms: float, owner: str, reason: str = "") -> dict[str, Any]:
    return {"name": name, "ms": ms, "owner": owner, "reason": reason}
