"""The loop against ExecuTorch's `to_backend` on chains of up to 3000 partitions.

PYTHONPATH=tests python -m benchmarks.loop [--full] [--sizes 30,100]
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import tracemalloc
from collections.abc import Sequence
from typing import Any

from attrs import asdict
from benchmarks import record
from benchmarks.chain import LOOPS, calls, converted, delegates, etdev_loop, upstream_loop
from executorch.exir import EdgeProgramManager
from support.processes import apart

SIZES = (30, 100, 300, 1000, 3000)
LIMIT_S = 300.0
PEAK_AT = 300
# Tracing makes everything several times slower.
TRACED_AT = 100
ROUNDS = 3
# Calls are counted at the first size whose objects fill the processor's cache, and beyond it.
COUNTED_AT = (PEAK_AT, 1000)
# Upstream is repeated where that is quick.
UPSTREAM_ROUNDS = {30: 3, 100: 3}


class Overdue(BaseException):
    """Upstream took too long; nothing on the way may catch it as an Exception."""


def main() -> None:
    """Measure, print, save."""
    options = _options()
    record.quiet()
    peaks = {side: apart("benchmarks.loop:peak_mb", side, PEAK_AT) for side in LOOPS}
    for loop in LOOPS.values():
        loop(converted(10))
    traced = {side: traced_mb(side, TRACED_AT) for side in LOOPS}
    rows: list[dict[str, Any]] = []
    for count in options.sizes:
        rows.append(_row(count, rows, math.inf if options.full else LIMIT_S))
        record.console.print(_cells(rows[-1]))
    data = {
        "rows": rows,
        "exponents": _exponents(rows),
        "exponent_of_calls": exponent([(count, calls(converted(count))) for count in COUNTED_AT]),
        "peak_mb": {"partitions": PEAK_AT, **peaks},
        "traced_peak_mb": {"partitions": TRACED_AT, **traced},
    }
    promises = bars(data)
    record.save("loop", data, promises)
    columns = ["partitions", "etdev s", "upstream s", "ratio"]
    record.table("relu(linear) chain, null backend: the loop alone", columns, map(_cells, rows))
    record.show("loop", promises)


def bars(data: dict[str, Any]) -> list[record.Bar]:
    """The promises that these sizes can check."""
    found = []
    at = {row["partitions"]: row for row in data["rows"]}
    for count, bound in ((300, 90), (1000, 300)):
        if (row := at.get(count)) and row["ratio"]:
            real = not row["extrapolated"]
            what = f"times faster at {count} partitions"
            found.append(record.Bar(what, row["ratio"], bound, least=True, measured=real))
    if (slope := data["exponents"]["etdev"]) is not None:
        found.append(record.Bar("growth exponent from 300 partitions on", slope, 1.1))
    found.append(record.Bar("growth exponent of calls", data["exponent_of_calls"], 1.01))
    for key, what in (("peak_mb", "peak memory"), ("traced_peak_mb", "peak Python heap")):
        peaks = data[key]
        what = f"{what} at {peaks['partitions']} partitions, MB"
        found.append(record.Bar(what, peaks["etdev"], peaks["upstream"]))
    return found


def _row(count: int, before: Sequence[dict[str, Any]], limit_s: float) -> dict[str, Any]:
    record.console.print(f"converting {count} ...")
    manager = converted(count)
    expected = predicted(before, count)
    rounds = UPSTREAM_ROUNDS.get(count, 1)
    # An unlimited run is for the bar at 1000; nobody wants to wait for 3000.
    if (expected or 0) > limit_s or count > 1000:
        rounds = 0
    ours: list[record.Took] = []
    theirs: list[record.Took | None] = []
    for turn in range(ROUNDS):
        ours.append(_checked(etdev_loop, manager, count))
        if turn < rounds:
            theirs.append(_within(limit_s, manager, count))
    stopped = None in theirs
    finished = [took for took in theirs if took]
    measured = bool(finished) and not stopped
    other = record.median(finished) if measured else expected
    mine = record.median(ours)
    return {
        "partitions": count,
        "etdev_s": mine,
        "etdev_runs": [asdict(took) for took in ours],
        "upstream_s": other,
        "upstream_runs": [asdict(took) for took in finished],
        "extrapolated": not measured,
        "stopped_after_s": limit_s if stopped else None,
        "ratio": other / mine if other else None,
    }


def _checked(loop: Any, manager: EdgeProgramManager, count: int) -> record.Took:
    took, made = record.clock(lambda: loop(manager))
    assert delegates(made) == count
    return took


def _within(limit_s: float, manager: EdgeProgramManager, count: int) -> record.Took | None:
    """Upstream's time, or None if it was stopped at the limit."""

    def stop(*_: object) -> None:
        raise Overdue

    before = signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0 if math.isinf(limit_s) else limit_s)
        return _checked(upstream_loop, manager, count)
    except Overdue:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def predicted(before: Sequence[dict[str, Any]], count: int) -> float | None:
    """Upstream's time at a size, from the exponent between the last two that were measured."""
    real = [row for row in before if not row["extrapolated"]][-2:]
    if len(real) < 2:
        return None
    last = real[-1]
    slope = exponent([(row["partitions"], row["upstream_s"]) for row in real])
    return float(last["upstream_s"] * (count / last["partitions"]) ** slope)


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Slope of a straight line through the points on paper with two logarithmic axes."""
    slope = statistics.linear_regression(
        [math.log(size) for size, _ in points], [math.log(value) for _, value in points]
    ).slope
    return float(slope)


def _exponents(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    ours = [(row["partitions"], row["etdev_s"]) for row in rows if row["partitions"] >= 300]
    real = [r for r in rows if not r["extrapolated"]]
    theirs = [(row["partitions"], row["upstream_s"]) for row in real][-2:]
    return {
        "etdev": exponent(ours) if len(ours) > 1 else None,
        "upstream": exponent(theirs) if len(theirs) > 1 else None,
    }


def peak_mb(side: str, count: int) -> float:
    """How far memory rises above the level at which the edge program is ready, in MB."""
    record.quiet()
    LOOPS[side](converted(10))
    manager = converted(count)
    record.forget_peak()
    before = record.peak_mb()
    LOOPS[side](manager)
    return record.peak_mb() - before


def traced_mb(side: str, count: int) -> float:
    """Peak of what Python itself allocates during the loop, in MB."""
    manager = converted(count)
    tracemalloc.start()
    try:
        LOOPS[side](manager)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["upstream_s"] is None:
        return str(row["partitions"]), f"{row['etdev_s']:.2f}", "not run", ""
    note = f"not run, extrapolated {row['upstream_s']:.0f}"
    theirs = note if row["extrapolated"] else f"{row['upstream_s']:.2f}"
    return str(row["partitions"]), f"{row['etdev_s']:.2f}", theirs, f"{row['ratio']:.0f}x"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="etdev's loop against to_backend")
    parser.add_argument("--full", action="store_true", help="wait for upstream at 1000 partitions")
    sizes = {"type": lambda text: [int(n) for n in text.split(",")], "default": SIZES}
    parser.add_argument("--sizes", **sizes, help="partitions, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
