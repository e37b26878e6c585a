"""Local search, which changes the best candidate as long as that helps.

The effect of a change is measured end to end, since costs of parts don't add up.
"""

from __future__ import annotations

from etdev.schema.limits import Limits
from etdev.schema.plan import Plan
from etdev_tune.attempts import Attempt
from etdev_tune.moves import moves_of
from etdev_tune.search import Search

# Number of the smallest sizes of partitions that are tried as a limit.
_LIMITS = 3


def improve(search: Search) -> None:
    """Try simplification, limits, and parts of the model under other owners.

    Args:
        search: The search so far, which has candidates, moves and the budget.
    """
    _simplify(search)
    _limits(search)
    asked = max((a for a in search.attempts if a.record), key=lambda a: len(a.candidate.plugins))
    for move in list(moves_of(_plan(asked), _plan(search.best()), search.useful)):
        candidate = search.best().candidate.with_pins(move.pins, move.owner, move.name)
        if not search.change(candidate, move.name, "moves") and not search.finished:
            return


def _plan(attempt: Attempt) -> Plan:
    assert attempt.record
    return attempt.record.build.plan


def _simplify(search: Search) -> None:
    """Try simplification if the user has it off, or without it if it changed something."""
    best = search.best()
    changed = not search.setup.registry.simplify
    if changed or any(method.simplified for method in _plan(best).methods):
        words = f"simplify={str(changed).lower()}"
        search.change(best.candidate.simplified(changed), words, "moves")


def _limits(search: Search) -> None:
    """Try without the smallest partitions of each plugin of the best candidate."""
    plan = _plan(search.best())
    entries = {e.node: e.op for method in plan.methods for e in method.ledger}
    for name in search.best().candidate.plugins:
        sizes = {
            sum(entries.get(node, "getitem") != "getitem" for node in partition.nodes)
            for partition in plan.partitions
            if partition.plugin == name
        }
        for size in sorted(sizes)[:-1][:_LIMITS]:
            words = f"min_nodes={size + 1}"
            limits = Limits(min_nodes=size + 1)
            candidate = search.best().candidate.with_limits(name, limits, words)
            search.change(candidate, f"{name} {words}", "limits")
