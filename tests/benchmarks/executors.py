"""The compile stage in one process and in two, side by side, and the bytes of both.

PYTHONPATH=tests python -m benchmarks.executors [--models bert-12] [--jobs 2]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from benchmarks import record
from benchmarks.lowering import MODELS, exported
from torch.export import ExportedProgram

from etdev import Lowerer
from etdev.stages import Step

ROUNDS = 2
# Of two processes; more of them on two cores promise nothing.
BOUND = 1.7


class Watch:
    """A listener that takes this process's own processor time of the compile stage."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.cpu_s = 0.0

    def __call__(self, stage: str, detail: str) -> None:
        if stage == "compile":
            self.begun = self.begun or time.process_time()

    def step(self, step: Step) -> None:
        if self.begun is not None:
            self.cpu_s = time.process_time() - self.begun


def main() -> None:
    """Measure, print, save."""
    options = _options()
    record.quiet()
    rows = [compared(name, options.jobs) for name in options.models]
    promises = [
        record.Bar(f"{row['model']}, {row['jobs']} processes", row["ratio"], BOUND, least=True)
        for row in rows
    ]
    record.save("executors", {"models": rows, "load": os.getloadavg()}, promises)
    columns = ["model", "one process s", "several s", "ratio", "own cpu s, one", "several"]
    keys = ("one_s", "several_s", "ratio", "one_cpu_s", "several_cpu_s")
    cells = [(row["model"], *(f"{row[key]:.2f}" for key in keys)) for row in rows]
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    record.table(f"the compile stage by the clock, {load}", columns, cells)
    record.show("executors", promises)


def compared(name: str, jobs: int) -> dict[str, Any]:
    """Both on one model, in turn."""
    program = exported(MODELS[name]())
    runs: dict[int, list[tuple[float, float]]] = {1: [], jobs: []}
    files = set()
    for turn in range(ROUNDS):
        for count in runs:
            record.console.print(f"{name}: round {turn + 1} of {ROUNDS}, {count} processes ...")
            file, *took = compiled(program, count)
            runs[count].append((took[0], took[1]))
            files.add(file)
    if len(files) != 1:
        raise SystemExit(f"{name}: {jobs} processes give another .pte")
    (one, one_cpu), (several, several_cpu) = (_middle(times) for times in runs.values())
    return {
        "model": name,
        "jobs": jobs,
        "one_s": one,
        "several_s": several,
        "ratio": one / several,
        "one_cpu_s": one_cpu,
        "several_cpu_s": several_cpu,
    }


def compiled(program: ExportedProgram, jobs: int) -> tuple[bytes, float, float]:
    """The .pte, and the compile stage's seconds by the clock and of this process's own."""
    watch = Watch()
    lowered = Lowerer(["cpu"], cache=False, jobs=jobs, listener=watch).lower(program)
    return lowered.to_executorch().buffer, lowered.stages.seconds["compile"], watch.cpu_s


def _middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    wall, cpu = zip(*times, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="one process against several")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["bert-12"])
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
