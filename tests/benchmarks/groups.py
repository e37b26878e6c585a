"""Groups: how long it takes to join what plugins claim to convex partitions.

PYTHONPATH=tests python -m benchmarks.groups
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from benchmarks import record

from etdev.graph.convex import find_partitions

Groups = Sequence[Sequence[int]]


@frozen
class Case:
    """A chain of nodes and the groups claimed of it.

    Args:
        name: What it is called in the table.
        nodes: Length of the chain.
        groups: Makes the groups.
        bound_s: Most processor seconds.
    """

    name: str
    nodes: int
    groups: Callable[[], Groups]
    bound_s: float


CASES = (
    Case("100,000 groups of one node", 100_000, lambda: [[n] for n in range(100_000)], 3),
    Case("100,000, each apart", 200_000, lambda: [[n] for n in range(0, 200_000, 2)], 3),
    Case("100,000 pairs", 200_000, lambda: [[n, n + 1] for n in range(0, 200_000, 2)], 3),
    Case("100,000 pairs, apart", 300_000, lambda: [[n, n + 1] for n in range(0, 300_000, 3)], 3),
    Case(
        "10,000 groups of 300",
        3_000_000,
        lambda: [range(n, n + 300) for n in range(0, 3_000_000, 300)],
        10,
    ),
)


def measure(case: Case) -> dict[str, Any]:
    """The processor seconds of one case, and the memory of the process afterwards."""
    inputs = [[node - 1] if node else [] for node in range(case.nodes)]
    groups = case.groups()
    start = time.process_time()
    convexity = find_partitions(inputs, groups)
    return {
        "groups": case.name,
        "partitions": len(convexity.partitions),
        "cpu_s": time.process_time() - start,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Measure every case, print the table, keep it as JSON."""
    record.quiet()
    rows = [measure(case) for case in CASES]
    bars = [
        record.Bar(f"processor seconds for {case.name}", row["cpu_s"], case.bound_s)
        for case, row in zip(CASES, rows, strict=True)
    ]
    record.save("groups", {"groups": rows}, bars)
    record.table(
        "convex partitions of a chain",
        ["groups", "partitions", "processor s", "peak MiB"],
        [
            [row["groups"], row["partitions"], f"{row['cpu_s']:.2f}", row["peak_mib"]]
            for row in rows
        ],
    )
    record.show("groups", bars)


if __name__ == "__main__":
    main()
