"""Predicted times of delegates and kernels against profiles: how well their orders agree.

PYTHONPATH=tests python -m benchmarks.prediction [--models minilm] [--page]

For each model Spearman's correlation over the ten slowest rows of `etdev run --profile`, among
delegates and nodes on kernels. `--page` writes tests/benchmarks/PREDICTION.md.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from benchmarks import record
from benchmarks.models import MODELS
from executorch.extension.pybindings import portable_lib
from support.results import by_line

from etdev import Lowerer
from etdev.runtime.profiling import profile
from etdev.schema.cost import Workload, seconds
from etdev.schema.plan import MethodPlan

# Of Spearman's correlation, in the median over models; rows of a model that are compared, and how
# many there have to be.
LEAST, ROWS, FEWEST = 0.8, 10, 4
CALLS, PROFILES = 20, 4
RESULTS = Path("tests/benchmarks/results/prediction.json")
PAGE = Path("tests/benchmarks/PREDICTION.md")
Row = Mapping[str, Any]


def predicted(plan: MethodPlan) -> dict[str, float]:
    """Return the predicted milliseconds of each partition and of each node on a kernel."""
    times: dict[str, float] = defaultdict(float)
    for entry in plan.ledger:
        times[entry.partition or entry.node] += entry.seconds * 1000
    return times


def compare(name: str) -> dict[str, Any]:
    """Lower a model, and set the times of a profile beside the predicted ones."""
    torch.manual_seed(0)
    with torch.no_grad(), TemporaryDirectory() as folder:
        sample, path = MODELS[name](), Path(folder) / "net.pte"
        lowered = Lowerer(["cpu"]).lower(
            sample.module, sample.inputs, dynamic_shapes=sample.dynamic_shapes
        )
        lowered.save(path)
        times: dict[str, float] = {}
        for _ in range(PROFILES):
            measured = profile(path, list(sample.inputs), repeat=CALLS, plan=lowered.plan)
            # Another program on the machine makes some of them slower.
            times = {row: min(ms, times.get(row, ms)) for row, ms in measured.times.items()}
    plan = lowered.plan["forward"]
    expected = predicted(plan)
    ops = {entry.partition or entry.node: entry.op for entry in plan.ledger}
    ops |= {partition.name: partition.plugin for partition in plan.partitions}
    work: dict[str, Any] = defaultdict(list)
    for entry in plan.ledger:
        cost = entry.cost or Workload()
        work[entry.partition or entry.node].append([entry.op, cost.flops, cost.moved_bytes])
    slowest = sorted(times, key=lambda row: -times[row])[:ROWS]
    rows = [
        {"op": ops[row], "ms": times[row], "predicted_ms": expected[row], "work": work[row]}
        for row in slowest
        if row in expected
    ]
    return {"model": name, "correlation": spearman(rows), "rows": rows}


def spearman(rows: Sequence[Row]) -> float | None:
    """Return the correlation of the orders of both times; None of fewer than four rows."""
    if len(rows) < FEWEST:
        return None
    ranks = [ranked([row[key] for row in rows]) for key in ("ms", "predicted_ms")]
    found = torch.corrcoef(torch.tensor(ranks, dtype=torch.float64))[0, 1]
    return 0.0 if found.isnan() else float(found)


def ranked(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the rank in their middle."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def page(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page of the results."""
    made, models = kept["circumstances"], kept["models"]
    known = [row for row in models if row["correlation"] is not None]
    yield "# Predicted times against measured ones\n"
    yield (
        "Made by `python -m benchmarks.prediction --page` of `results/prediction.json`: Spearman's "
        f"correlation of predicted and profiled times over the {ROWS} slowest delegates and nodes "
        f"on kernels. {made['date']}, torch {made['torch']}, ExecuTorch {made['executorch']}, one "
        "thread. The speeds were chosen by these models.\n"
    )
    middle = median(row["correlation"] for row in known)
    yield (
        f"{len(known)} models with at least {FEWEST} rows: median {middle:.2f}. "
        f"{len(models) - len(known)} others have fewer.\n"
    )
    yield "| model | correlation | rows | most underrated | most overrated |"
    yield "| --- | ---: | ---: | --- | --- |"
    for row in sorted(known, key=lambda row: row["correlation"]):
        off = sorted(row["rows"], key=lambda one: one["predicted_ms"] / (one["ms"] or 1e-6))
        ends = [f"{one['op']}: {one['ms']:.3g} ms for {one['predicted_ms']:.2g}" for one in off]
        cells = [row["model"], f"{row['correlation']:.2f}", str(len(off)), ends[0], ends[-1]]
        yield f"| {' | '.join(cells)} |"


def publish() -> None:
    """Write results and page into the checkout, with predictions by today's table."""
    made = json.loads((record.FOLDER / "prediction.json").read_text())
    for model in made["models"]:
        for row in model["rows"]:
            inside = row["op"] == "cpu"
            costs = [(Workload(*cost), op) for op, *cost in row.pop("work")]
            row["predicted_ms"] = 1000 * sum(seconds(cost, op, inside) for cost, op in costs)
        model["correlation"] = spearman(model["rows"])
    made.pop("bars")
    RESULTS.write_text(by_line(made, 4) + "\n")
    PAGE.write_text("\n".join(page(made)) + "\n")


def bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[record.Bar]:
    """Yield the bar for the correlation in the middle."""
    known = [row["correlation"] for row in rows if row["correlation"] is not None]
    middle = median(known) if known else 0.0
    yield record.Bar("median of Spearman's correlation", middle, LEAST, least=True)


def main() -> None:
    """Compare models, keep and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS)[:45])
    parser.add_argument("--missing", action="store_true", help="leave out kept rows")
    parser.add_argument("--page", action="store_true", help="keep results and page in the checkout")
    options = parser.parse_args()
    record.quiet()
    portable_lib._unsafe_reset_threadpool(1)
    rows = record.each(
        "prediction",
        options.models,
        compare,
        bars,
        missing=options.missing,
        told=lambda row: row["correlation"],
    )
    record.show("prediction", list(bars(rows)))
    if options.page:
        publish()


if __name__ == "__main__":
    main()
