"""Topological order of numbers, with a fixed result also for cycles."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def run_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return numbers up to a count, each after those that it reads, else ascending.

    Args:
        count: Number of numbers.
        pairs: A number and one that reads it, each pair once; numbers on a cycle come last.
    """
    readers: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in pairs:
        readers[source].append(target)
        waits[target] += 1
    ready = [number for number, reads in enumerate(waits) if not reads]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order + [number for number, reads in enumerate(waits) if reads]
