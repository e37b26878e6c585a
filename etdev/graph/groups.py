"""Union of groups that share a member, such as a node number or a name, in linear time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def joined(groups: Iterable[Sequence[T]]) -> list[list[T]]:
    """Join groups that share a member, directly or through others.

    Args:
        groups: The groups; empty ones are left out.

    Returns:
        Disjoint groups in the order of their first members; members in the order in which they
        were given, each once.
    """
    leader: dict[T, T] = {}

    def find(member: T) -> T:
        while leader[member] != member:
            # Each walk shortens the path for the next one.
            leader[member] = leader[leader[member]]
            member = leader[member]
        return member

    for group in groups:
        for member in group:
            leader.setdefault(member, member)
            leader[find(member)] = find(group[0])
    members: dict[T, list[T]] = {}
    for member in leader:
        members.setdefault(find(member), []).append(member)
    return list(members.values())
