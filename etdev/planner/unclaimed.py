"""The nodes that no plugin claims and nothing decomposes."""

from __future__ import annotations

from collections.abc import Iterable

from etdev.errors import LoweringError
from etdev.schema.ledger import listed
from etdev.schema.plan import MethodPlan


def refuse_unclaimed(who: str, plans: Iterable[MethodPlan], cure: str) -> None:
    """Refuse by name the nodes that have no owner, with what every plugin said about them.

    Args:
        who: The stage or function that can do without none of them, for the message.
        plans: The plans of a program's methods.
        cure: What to do about it.

    Raises:
        LoweringError: There are some.
    """
    entries = [
        (plan.method, entry)
        for plan in plans
        for entry in plan.ledger
        if entry.owner is None and not entry.foreign
    ]
    if entries:
        raise LoweringError(who, f"no plugin takes {listed(entries)}", cure)
