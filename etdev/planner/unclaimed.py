"""The nodes that no plugin claims and nothing decomposes."""

from __future__ import annotations

from collections.abc import Iterable

from etdev.errors import LoweringError
from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan

# More nodes than these are counted instead of named.
_NAMED = 5


def check_claimed(who: str, plans: Iterable[MethodPlan], cure: str) -> None:
    """Refuse by name the nodes that have no owner, with what every plugin said about them.

    Args:
        who: The stage or function that needs them all, for the message.
        plans: The plans of a program's methods.
        cure: What to do about it.

    Raises:
        LoweringError: There are such nodes.
    """
    refused = [
        _described(plan.method, entry)
        for plan in plans
        for entry in plan.ledger
        if entry.owner is None and not entry.foreign
    ]
    if refused:
        more = [f"and {len(refused) - _NAMED} more"] if len(refused) > _NAMED else []
        named = ", ".join([*refused[:_NAMED], *more])
        raise LoweringError(who, f"no plugin takes {named}", cure)


def _described(method: str, entry: Entry) -> str:
    where = f" at {entry.line}" if entry.line else ""
    said = [f"{verdict.plugin}: {verdict.text or verdict.code}" for verdict in entry.reasons]
    told = "; ".join(said) or "no plugin was asked"
    return f"{entry.op}{where} ({method}/{entry.node}; {told})"
