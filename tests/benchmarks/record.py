"""What the benchmarks share: clocks, turns, bars, circumstances, and where numbers are kept."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import logging
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table
from support.results import by_line

FOLDER = Path("build/bench")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)


@frozen
class Bar:
    """A number that a benchmark promises to stay above or below.

    Args:
        what: What is measured.
        value: What came out.
        bound: The bar.
        least: True if the value must be at least the bound, False if at most.
        measured: False if part of the value is an extrapolation.
    """

    what: str
    value: float
    bound: float
    least: bool = False
    measured: bool = True

    @property
    def met(self) -> bool:
        """Whether the promise holds."""
        return self.value >= self.bound if self.least else self.value <= self.bound


@frozen
class Took:
    """How long a call took: processor time, which is what is compared, and by the clock."""

    cpu_s: float
    wall_s: float


def clock(call: Callable[[], Any]) -> tuple[Took, Any]:
    """Time a call, the garbage of whatever ran before it left out.

    Processor time, because a busy machine doubles what the clock on the wall says; with one
    thread, which `quiet` sees to, the two agree on an idle one.
    """
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return Took(time.process_time() - cpu, time.perf_counter() - wall), result


def median(runs: Iterable[Took]) -> float:
    """Return the processor seconds in the middle."""
    return statistics.median(took.cpu_s for took in runs)


def in_turn(what: str, jobs: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """Do jobs in turn, A B A B, so that a busy moment hits all of them; return all results."""
    results: dict[K, list[T]] = {name: [] for name in jobs}
    for turn in range(rounds):
        console.print(f"{what}: round {turn + 1} of {rounds} ...", markup=False)
        for name, job in jobs.items():
            results[name].append(job())
    return results


def errors(outputs: Iterable[Any], expected: Iterable[torch.Tensor]) -> float:
    """Return the largest error of any output, relative to its largest value."""
    return max(
        float((torch.as_tensor(a) - b).abs().max() / max(float(b.abs().max()), 1e-3))
        for a, b in zip(outputs, expected, strict=True)
    )


def quiet() -> None:
    """One thread, no warnings between the tables, and no compiled partitions from earlier runs."""
    os.environ["ETDEV_CACHE"] = "off"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def forget_peak() -> None:
    """Let Linux start the mark of the most memory anew; elsewhere it is that of the process."""
    gc.collect()
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def peak_mb() -> float:
    """Return the most memory that this process has had."""
    # Linux hands getrusage's mark from parent to child, so that of /proc is the one to read.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def circumstances() -> dict[str, Any]:
    """Versions, processors, day, and what a second means."""
    packages = ("torch", "executorch", "transformers", "etdev")
    return {
        **{name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "timing": "processor seconds, one thread, median",
        "date": date.today().isoformat(),
    }


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, the first column to the left and the others to the right."""
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    for row in rows:
        made.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(made)


def columns(title: str, rows: Sequence[Mapping[str, Any]], keys: Iterable[str] = ()) -> None:
    """Print some columns of rows, or all."""
    shown = list(keys or rows[0])
    table(title, shown, ([row.get(key, "-") for key in shown] for row in rows))


def parts(title: str, rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """Print a mapping of each row as a column."""
    names = [row["model"] for row in rows]
    cells = [[part, *(row[key][part] for row in rows)] for part in rows[0][key]]
    table(title, [key, *names], cells)


def save(name: str, data: Mapping[str, Any], bars: Sequence[Bar]) -> None:
    """Keep everything as build/bench/NAME.json, before a fault in a table can lose it."""
    kept = [{**asdict(bar), "met": bar.met} for bar in bars]
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {"circumstances": circumstances(), **data, "bars": kept}
    (FOLDER / f"{name}.json").write_text(by_line(content, 3) + "\n")


def each(
    name: str,
    models: Iterable[str],
    measure: Callable[[str], dict[str, Any]],
    bars: Callable[[Sequence[Any]], Iterable[Bar]],
    *,
    missing: bool,
    told: Callable[[dict[str, Any]], object] = lambda row: row,
) -> list[dict[str, Any]]:
    """Measure models, print what is told of each and keep it; return these rows and the kept ones.

    A model that fails is left out, and with `missing` one that has a kept row.
    """
    file = FOLDER / f"{name}.json"
    known = json.loads(file.read_text())["models"] if file.exists() else []
    rows = {row["model"]: row for row in known}
    for model in models:
        if missing and model in rows:
            continue
        try:
            rows[model] = measure(model)
        except Exception as error:
            console.print(f"{model}: {type(error).__name__}: {error}"[:300], markup=False)
            continue
        console.print(f"{model}: {told(rows[model])}", markup=False)
        save(name, {"models": list(rows.values())}, list(bars([*rows.values()])))
    return list(rows.values())


def show(name: str, bars: Sequence[Bar]) -> None:
    """Print which promises hold."""
    rows = [
        (
            bar.what,
            f"{bar.value:.3g}" + ("" if bar.measured else " (extrapolated)"),
            f"{'>=' if bar.least else '<='} {bar.bound:.4g}",
            "pass" if bar.met else "FAIL",
        )
        for bar in bars
    ]
    table(f"{name}: bars", ["bar", "value", "bound", ""], rows)
    console.print(f"wrote {FOLDER / name}.json")
