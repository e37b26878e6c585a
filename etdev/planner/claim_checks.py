"""Checks that the claims of a plugin name existing nodes and don't contradict themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from etdev.errors import ClaimError
from etdev.graph.convex import find_partitions, joined
from etdev.graph.method import MethodGraph
from etdev.registry.plugin import Plugin
from etdev.schema.claims import Claim
from etdev.schema.reasons import RESERVED


def check_claims(plugin: Plugin, graph: MethodGraph, claims: Iterable[Claim]) -> None:
    """Refuse claims that no plan could keep, even without other plugins.

    A node may be in several claims: the first claim that can have it counts.
    """
    claims = list(claims)
    refusals = [refusal for claim in claims for refusal in claim.refusals]
    claimed = [name for claim in claims for group in claim.groups for name in group.nodes]
    unknown = [("claims", n) for n in claimed if n not in graph.number and n not in graph.constants]
    unknown += [("refuses", each.node) for each in refusals if each.node not in graph.number]
    for verb, node in unknown:
        what = f"{verb} {node!r}, which is not a computing node of method {graph.method!r}"
        cure = "name nodes of the program that claim_nodes was given, no inputs or outputs"
        raise ClaimError(plugin.name, what, cure)
    # A plugin may refuse the getitems that follow an op that it claims.
    wanted = set(claimed)
    for claim in claims:
        groups = ([graph.number[n] for n in g.nodes if n in graph.number] for g in claim.groups)
        _check_convex(plugin, graph, map(graph.with_followers, groups))
    for refusal in refusals:
        if refusal.code in RESERVED:
            what = f"refuses {refusal.node!r} with the code {refusal.code!r}, which is the host's"
            cure = f"use a code of its own, such as op or dtype; reserved are {', '.join(RESERVED)}"
            raise ClaimError(plugin.name, what, cure)
        if refusal.node in wanted:
            what = f"claims {refusal.node!r} in method {graph.method!r} and refuses it with"
            raise ClaimError(plugin.name, f"{what} {refusal.code!r}", "do one of the two")


def _check_convex(plugin: Plugin, graph: MethodGraph, members: Iterable[Sequence[int]]) -> None:
    """Refuse a group that no delegate could have whole, even without other plugins."""
    groups = joined(members)
    # The graph itself has no cycles.
    if all(len(group) == 1 for group in groups):
        return
    torn = find_partitions(graph.inputs, groups, merge=False).torn
    for index, blocker in sorted(torn.items()):
        names = [graph.nodes[number].name for number in sorted(groups[index])]
        named = textwrap.shorten(", ".join(names), 100, placeholder=" ...")
        between = graph.nodes[blocker].name
        what = f"claims {named} of method {graph.method!r} as one group, but {between} lies "
        what += "between them, so that no delegate can have all of them"
        cure = f"claim {between} with them, or make smaller groups"
        raise ClaimError(plugin.name, what, cure)
