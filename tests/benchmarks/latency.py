"""Latency of a .pte: etdev's default plan, ExecuTorch's own XNNPACK path, and eager PyTorch.

PYTHONPATH=tests python -m benchmarks.latency [--models minilm] [--missing] [--page]

All sides run in one process with one thread, in turn. Every row is kept in build/bench as soon as
it is measured; rows of other models stay. `--page` writes tests/benchmarks/LATENCY.md of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attrs import asdict
from benchmarks import record
from benchmarks.lowering import upstream
from benchmarks.models import MODELS, Sample
from executorch.extension.pybindings import portable_lib
from executorch.runtime import Runtime
from support.results import by_line

from etdev import Lowerer
from etdev.pte.read import methods_in
from etdev.upstream.trees import flat

# What the default plan may cost beside ExecuTorch's own path, and what it does in the middle.
MOST, MIDDLE = 1.05, 0.95
ROUNDS = 3
# At least this long a round is measured for each side, in seconds of the clock.
LEAST_S = 0.05
# A row that is slower is measured again, as another program on the machine may be why.
REPEATS = 3
RESULTS = Path("tests/benchmarks/results/latency.json")
PAGE = Path("tests/benchmarks/LATENCY.md")
ETDEV, EXECUTORCH, EAGER = "etdev", "executorch", "eager"
NORMS = "norms are right where the mean is far from 0: a delegate subtracts a number first"
# Why a side other than etdev's is faster, as found in profiles of both.
REASONS: Mapping[str, str] = {
    "found rows": "ExecuTorch's kernel of a boolean index takes 0.18 ms of it",
    **dict.fromkeys(("poolformer", "focalnet", "convnextv2"), NORMS),
}
# Of rows whose sides call as many delegates and kernels.
SAME = "the same calls; noise"


class Side:
    """A loaded method, called and timed."""

    def __init__(self, program: bytes, inputs: Sequence[Any]) -> None:
        # The method reads the bytes and the program's memory as long as it lives. They are a copy
        # of its own, as a file would be.
        self.data = bytes(bytearray(program))
        self.program = Runtime.get().load_program(self.data)
        self.method = self.program.load_method("forward")
        # Some of the zoo's are views of larger ones, which the runtime refuses.
        self.inputs = [x.contiguous() if isinstance(x, torch.Tensor) else x for x in inputs]

    def outputs(self) -> list[Any]:
        """A call's outputs, copied out of the method's memory."""
        return [value.clone() for value in self.method.execute(self.inputs)]

    def __call__(self) -> None:
        self.method.execute(self.inputs)


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds of processor time, all in one thread; others may use the machine meanwhile."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1000


def in_turn(sides: Mapping[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """Times of each side, call by call in turn, so that a busy moment hits all of them."""
    for call in sides.values():
        call()
    order = list(sides)
    times: dict[str, list[float]] = {name: [] for name in order}
    start = time.perf_counter()
    while len(times[order[0]]) < calls or time.perf_counter() - start < LEAST_S * len(order):
        # Whoever comes second finds warmer caches.
        order.reverse()
        for name in order:
            times[name].append(timed(sides[name]))
    return times


def loaded_in_turn(
    programs: Mapping[str, bytes], eager: Callable[[], Any], inputs: Sequence[Any], calls: int
) -> dict[str, float]:
    """Milliseconds of each side: the median of rounds, and of each the fastest call.

    Programs are loaded afresh for each round, each first in every second one: where its weights
    come to lie makes a .pte up to 4 % faster or slower than its own copy.
    """
    order = list(programs)
    found: dict[str, list[float]] = {name: [] for name in (*order, EAGER)}
    for _ in range(ROUNDS):
        order.reverse()
        sides = {name: Side(programs[name], inputs) for name in order}
        # Eager PyTorch by itself: it leaves caches that slow the .pte called next by up to a third.
        for name, times in (in_turn(sides, calls) | in_turn({EAGER: eager}, calls)).items():
            found[name].append(min(times))
    return {name: median(times) for name, times in found.items()}


def lowered(sample: Sample) -> tuple[dict[str, bytes], str]:
    """Return the program of each side, and why ExecuTorch's is missing."""
    shapes = sample.dynamic_shapes
    exported = torch.export.export(sample.module, sample.inputs, dynamic_shapes=shapes)
    # In this order, since ExecuTorch may change a program.
    programs = {ETDEV: bytes(Lowerer(["cpu"]).lower(exported).to_executorch().buffer)}
    try:
        programs[EXECUTORCH] = bytes(upstream(exported).buffer)
        Side(programs[EXECUTORCH], sample.inputs)()
    except Exception as error:
        programs.pop(EXECUTORCH, None)
        return programs, f"ExecuTorch fails: {(str(error).splitlines() or [''])[0][:80]}"
    return programs, ""


def measure(name: str, calls: int) -> dict[str, Any]:
    """Lower a model both ways, check both against eager, time all of them."""
    torch.manual_seed(0)
    with torch.no_grad():
        sample = MODELS[name]()
        programs, failure = lowered(sample)
        expected = flat(sample.module(*sample.inputs))
        sides = {side: Side(program, sample.inputs) for side, program in programs.items()}
        errors = {side: record.errors(own.outputs(), expected) for side, own in sides.items()}
        sides.clear()

        def eager() -> None:
            sample.module(*sample.inputs)

        rows = [loaded_in_turn(programs, eager, sample.inputs, calls)]
        while len(rows) < REPEATS and max(_ratios(rows[-1])) > 1:
            rows.append(loaded_in_turn(programs, eager, sample.inputs, calls))
    best = sorted(rows, key=lambda row: max(_ratios(row)))[len(rows) // 2]
    return {
        "model": name,
        **{f"{side}_ms": ms for side, ms in best.items()},
        "of_executorch": best[ETDEV] / best[EXECUTORCH] if EXECUTORCH in best else None,
        "of_eager": best[ETDEV] / best[EAGER],
        "calls": {side: instructions(program) for side, program in programs.items()},
        "max_error": errors,
        "failure": failure,
    }


def _ratios(times: Mapping[str, float]) -> list[float]:
    return [times[ETDEV] / other for side, other in times.items() if side != ETDEV]


def instructions(program: bytes) -> str:
    """Return how many delegates and kernels a .pte calls: `2+3`."""
    (method,) = methods_in(program)
    delegates = sum(delegate.calls for delegate in method.delegates)
    return f"{delegates}+{sum(method.kernels.values())}"


def reason(row: Mapping[str, Any]) -> str:
    """Return why another side is faster, or what is remarkable about a row."""
    slower = max(row["of_executorch"] or 0, row["of_eager"]) > 1
    usual = SAME if len({*row["calls"].values()}) == 1 else "?"
    return REASONS.get(row["model"], usual) if slower else row["failure"]


def bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[record.Bar]:
    """Yield what is promised of the rows that ExecuTorch has, too."""
    both = {row["model"]: row["of_executorch"] for row in rows if row["of_executorch"]}
    yield record.Bar("median over models, etdev / ExecuTorch", median(both.values()), MIDDLE)
    worst = max(both, key=lambda name: both[name])
    yield record.Bar(f"slowest, {worst}, etdev / ExecuTorch", both[worst], MOST)
    unexplained = [row["model"] for row in rows if reason(row) == "?"]
    yield record.Bar("slower rows without a reason", len(unexplained), 0)


def page(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page of the results."""
    rows, made = kept["models"], kept["circumstances"]
    both = [row["of_executorch"] for row in rows if row["of_executorch"]]
    yield "# Latency of etdev's default plan\n"
    yield (
        "Made by `python -m benchmarks.latency --page` of `results/latency.json`: milliseconds of "
        f"processor time a call, one thread, fastest call of each of {ROUNDS} rounds, then their "
        "median. Calls are "
        "in turn in one process. *calls* are delegates + kernels in the `.pte`, etdev's and "
        "ExecuTorch's (`to_edge_transform_and_lower` with XnnpackPartitioner). "
        "Rows with * are of an earlier run, by the clock on a busy machine. "
        f"{made['date']}, torch {made['torch']}, ExecuTorch {made['executorch']}.\n"
    )
    yield (
        f"{len(rows)} models; of ExecuTorch's {len(both)}: median {median(both):.2f}, "
        f"slowest {max(both):.2f}, above 1.05: {sum(ratio > MOST for ratio in both)}. "
        f"Slower than eager: {sum(row['of_eager'] > 1 for row in rows)}.\n"
    )
    yield "| model | etdev | ExecuTorch | eager | of ExecuTorch's | of eager's | calls | why |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    for row in sorted(rows, key=lambda row: -(row["of_executorch"] or 0)):
        theirs = row.get("executorch_ms")
        mark = "*" if row.get("clock") == "wall" else ""
        cells = [row["model"] + mark, f"{row['etdev_ms']:.3f}", f"{theirs:.3f}" if theirs else "-"]
        cells += [f"{row['eager_ms']:.3f}"]
        cells += [f"{row['of_executorch']:.2f}" if theirs else "-", f"{row['of_eager']:.2f}"]
        cells += [", ".join(row["calls"].values()), reason(row)]
        yield f"| {' | '.join(cells)} |"


def publish() -> None:
    """Write results and page into the checkout."""
    made = json.loads((record.FOLDER / "latency.json").read_text())
    made["bars"] = [asdict(bar) for bar in bars(made["models"])]
    RESULTS.write_text(by_line(made, 3) + "\n")
    PAGE.write_text("\n".join(page(made)) + "\n")


def main() -> None:
    """Measure models, keep and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--calls", type=int, default=5, help="least number of calls a round")
    parser.add_argument("--page", action="store_true", help="keep results and page in the checkout")
    parser.add_argument("--missing", action="store_true", help="leave out kept rows")
    options = parser.parse_args()
    record.quiet()
    portable_lib._unsafe_reset_threadpool(1)
    rows = record.each(
        "latency",
        options.models,
        lambda name: measure(name, options.calls),
        bars,
        missing=options.missing,
    )
    record.columns("latency, ms per call", rows)
    record.show("latency", list(bars(rows)))
    if options.page:
        publish()


if __name__ == "__main__":
    main()
