"""What the benchmarks share: bars, the circumstances of a run, and where the numbers are kept."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import logging
import os
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table

FOLDER = Path("build/bench")
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


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, the first column to the left and the others to the right."""
    made = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    for row in rows:
        made.add_row(*map(str, row))
    console.print(made)


def save(name: str, data: Mapping[str, Any], bars: Sequence[Bar]) -> None:
    """Keep everything as build/bench/NAME.json, before a fault in a table can lose it."""
    kept = [{**asdict(bar), "met": bar.met} for bar in bars]
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {"circumstances": circumstances(), **data, "bars": kept}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


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
