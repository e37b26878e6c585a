"""Changes between two plans: what `etdev diff` says, with the nodes of both graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etdev.report.difference import diff, places
from etdev.schema.plan import MethodPlan, Plan


def changes(before: Plan, after: Plan) -> dict[str, Any]:
    """Return the differences of two plans as plain data.

    `moves` has the nodes with another owner or device, each with its name in both plans.
    """
    told = diff(before, after).to_dict()
    methods = [{each.method: each for each in plan.methods} for plan in (before, after)]
    moves = [
        move
        for name in dict.fromkeys([*methods[0], *methods[1]])
        for move in _moves(name, methods[0].get(name), methods[1].get(name))
    ]
    return {"parts": told["parts"], "figures": told["figures"], "moves": moves}


def _moves(
    name: str, before: MethodPlan | None, after: MethodPlan | None
) -> Iterator[dict[str, Any]]:
    old, new = places(before), places(after)
    for place in dict.fromkeys([*old, *new]):
        sides = old.get(place), new.get(place)
        was, now = (side[1] if side else "" for side in sides)
        if was != now:
            entries = [side[0] if side else None for side in sides]
            known = next(entry for entry in entries if entry)
            nodes = [entry.node if entry else "" for entry in entries]
            told = {"op": known.op, "module": known.module, "was": was, "now": now}
            yield {"method": name, "nodes": nodes, **told}
