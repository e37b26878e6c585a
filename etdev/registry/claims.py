"""Checks that the claims of a plugin name existing nodes and don't contradict themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etdev.errors import ClaimError
from etdev.graph.convex import find_partitions, joined
from etdev.graph.method import MethodGraph
from etdev.registry.plugin import Plugin
from etdev.schema.claims import Claim, Group
from etdev.schema.reasons import RESERVED

# More nodes than these are counted instead of named.
_NAMED = 3


def check_claims(plugin: Plugin, graph: MethodGraph, claims: Iterable[Claim]) -> None:
    """Refuse claims that no plan could keep, even without other plugins.

    A node may be in several claims: the first claim that can have it counts.
    """
    claims = list(claims)
    # A plugin may refuse the getitems that follow an op that it claims.
    wanted = {name for claim in claims for group in claim.groups for name in group.nodes}
    for claim in claims:
        members = [_members(plugin, graph, group) for group in claim.groups]
        _check_convex(plugin, graph, members)
    for refusal in (refusal for claim in claims for refusal in claim.refusals):
        if refusal.node not in graph.number:
            raise _unknown(plugin, graph, "refuses", refusal.node)
        if refusal.code in RESERVED:
            raise ClaimError(
                plugin.name,
                f"refuses {refusal.node!r} with the code {refusal.code!r}, which is the host's",
                f"use a code of its own, such as op or dtype; reserved are {', '.join(RESERVED)}",
            )
        if refusal.node in wanted:
            raise ClaimError(
                plugin.name,
                f"claims {refusal.node!r} in method {graph.method!r} and refuses it with "
                f"{refusal.code!r}",
                "do one of the two",
            )


def _members(plugin: Plugin, graph: MethodGraph, group: Group) -> Sequence[int]:
    """Return the nodes of a group, and the getitems that follow them."""
    for name in group.nodes:
        if name not in graph.number and name not in graph.constants:
            raise _unknown(plugin, graph, "claims", name)
    return graph.with_followers(graph.number[n] for n in group.nodes if n in graph.number)


def _check_convex(plugin: Plugin, graph: MethodGraph, members: Iterable[Sequence[int]]) -> None:
    """Refuse a group that no delegate could have whole, even without other plugins."""
    groups = joined(members)
    # The graph itself has no cycles.
    if all(len(group) == 1 for group in groups):
        return
    torn = find_partitions(graph.inputs, groups, merge=False).torn
    for index, blocker in sorted(torn.items()):
        names = [graph.nodes[number].name for number in sorted(groups[index])]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        between = graph.nodes[blocker].name
        raise ClaimError(
            plugin.name,
            f"claims {', '.join(names[:_NAMED])}{more} of method {graph.method!r} as one group, "
            f"but {between} lies between them, so that no delegate can have all of them",
            f"claim {between} with them, or make smaller groups",
        )


def _unknown(plugin: Plugin, graph: MethodGraph, verb: str, node: str) -> ClaimError:
    return ClaimError(
        plugin.name,
        f"{verb} {node!r}, which is not a computing node of method {graph.method!r}",
        "name nodes of the program that claim_nodes was given, no inputs or outputs",
    )
