"""Constants: which travel inside a delegate, which stay outside, which are handed out twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from etdev.errors import ClaimError
from etdev.graph import MethodGraph, describe
from etdev.plan import Constant, Partition


def settle(
    graph: MethodGraph, partitions: Sequence[Partition], ask: Callable[[Partition], Any]
) -> list[Partition]:
    """Decide each constant's storage, and with it the inputs of each partition.

    Args:
        graph: The method.
        partitions: Its partitions, all constants still outside.
        ask: Calls `claim_constants` on a partition's owner.

    Returns:
        The partitions in the same order, constants and inputs settled.

    Raises:
        ClaimError: A plugin claims a constant that its partition doesn't read, or one that the
            method writes.
    """
    claimed = [_claimed(partition, ask(partition)) for partition in partitions]
    claims = Counter(name for names in claimed for name in names)
    users = Counter({name: len(graph.placeholders[name].users) for name in claims})
    return [
        _settled(graph, partition, names, claims, users)
        for partition, names in zip(partitions, claimed, strict=True)
    ]


def _claimed(partition: Partition, answer: Any) -> set[str]:
    known = {constant.name: constant for constant in partition.constants}
    if isinstance(answer, str):
        raise ClaimError(
            partition.plugin, f"claim_constants returned {answer!r}", "return a list of constants"
        )
    names = {item.name if isinstance(item, Constant) else str(item) for item in answer or ()}
    for name in sorted(names):
        where = f"{partition.method}/{partition.name}"
        if name not in known:
            raise ClaimError(
                partition.plugin,
                f"claims the constant {name!r}, which {where} does not read",
                "choose from partition.constants",
            )
        if known[name].mutated:
            raise ClaimError(
                partition.plugin,
                f"would freeze the buffer {known[name].target!r} in {where}, "
                "but the method writes to it",
                "leave out constants that are mutated",
            )
    return names


def _settled(
    graph: MethodGraph,
    partition: Partition,
    claimed: set[str],
    claims: Mapping[str, int],
    users: Mapping[str, int],
) -> Partition:
    numbers = [graph.number[name] for name in partition.nodes]
    inside = set(partition.nodes)

    def storage(constant: Constant) -> str:
        if constant.name not in claimed:
            return "outside"
        readers = sum(user.name in inside for user in graph.placeholders[constant.name].users)
        alone = claims[constant.name] == 1 and readers == users[constant.name]
        return "owned" if alone else "copied"

    return evolve(
        partition,
        constants=tuple(evolve(c, storage=storage(c)) for c in partition.constants),
        inputs=tuple(describe(node) for node in graph.reads(numbers) if node.name not in claimed),
    )
