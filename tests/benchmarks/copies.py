"""Copies between devices per run: counted by hand, by etdev, and by ExecuTorch's own pass.

PYTHONPATH=tests python -m benchmarks.copies
"""

from __future__ import annotations

from typing import Any

from benchmarks import record
from support.models.copies import CASES, Case

from etdev.pte.read import methods_of


def count(program: Any) -> tuple[int, int]:
    """Copies to devices and back, over all methods of an emitted program."""
    methods = methods_of(program.executorch_program)
    return sum(m.host_to_device for m in methods), sum(m.device_to_host for m in methods)


def measure(case: Case) -> dict[str, Any]:
    """Both sides emit the very same partitions."""
    lowered = case.lower()
    ours, theirs = count(lowered.to_executorch()), count(lowered.edge.to_executorch())
    return {
        "program": case.name,
        "minimum": case.minimum,
        "etdev": ours,
        "executorch": theirs,
        "through_the_host": sum(
            not one.source.is_cpu and one.tensor.name == other.tensor.name and other.source.is_cpu
            for method in lowered.plan.methods
            for one in method.copies
            for other in method.copies
        ),
    }


def main() -> None:
    """Measure every program, print the table, keep it as JSON."""
    record.quiet()
    rows = [measure(case) for case in CASES]
    totals = {side: sum(map(sum, (row[side] for row in rows))) for side in ("etdev", "executorch")}
    least = sum(map(sum, (row["minimum"] for row in rows)))
    bars = [
        record.Bar("copies of etdev", totals["etdev"], least),
        record.Bar(
            "copies of ExecuTorch, all programs", totals["executorch"], totals["etdev"], True
        ),
    ]
    record.save("copies", {"programs": rows}, bars)
    record.table(
        "copies per run: to a device + back",
        ["program", "minimum", "etdev", "ExecuTorch", "device to device"],
        [
            [
                row["program"],
                *("{} + {}".format(*row[side]) for side in ("minimum", "etdev", "executorch")),
                row["through_the_host"],
            ]
            for row in rows
        ],
    )
    record.show("copies", bars)


if __name__ == "__main__":
    main()
