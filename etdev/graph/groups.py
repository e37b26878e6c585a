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
    for group in groups:
        for member in group:
            if member in leader:
                _join(leader, group[0], member)
            else:
                leader[member] = group[0] if group[0] in leader else member
    members: dict[T, list[T]] = {}
    for member in leader:
        members.setdefault(_find(leader, member), []).append(member)
    return list(members.values())


def _join(leader: dict[T, T], one: T, other: T) -> None:
    first, second = _find(leader, one), _find(leader, other)
    if first != second:
        leader[second] = first


def _find(leader: dict[T, T], member: T) -> T:
    """Return the leader of a member's group, and shorten the path to it."""
    while leader[member] != member:
        leader[member] = leader[leader[member]]
        member = leader[member]
    return member
