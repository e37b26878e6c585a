"""Orders in which things can run that read of each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def run_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Numbers up to a count, each after those that it reads, else ascending.

    Args:
        count: How many there are.
        pairs: Who is read by whom, each pair once; what is on a cycle comes last.
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
