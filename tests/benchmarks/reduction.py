"""Faults hidden in real models, and how far `etdev reduce` gets with each of them.

PYTHONPATH=tests python -m benchmarks.reduction --missing --rows 'kernel-*' --model 'U-Net block'

The repro of each row of the tables runs in the middle of a model. What came of it is kept in
results/reduction.json at once, its script in build/bench/reduction. `--page` writes
tests/benchmarks/REDUCTION.md of all that is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from benchmarks.record import FOLDER
from etdev_reduce.reduction import Reduction
from support import hidden, quirks
from support.results import by_line
from torch import nn

from etdev import EtdevError
from etdev.app import EagerMethod

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results/reduction.json", HERE / "REDUCTION.md"
SCRIPTS = FOLDER / "reduction"
# The small ones three times as often.
TURN = (*(("U-Net block", "decoder step") * 3), "MobileNetV2", "MiniLM")
# Issue 56: as many nodes, so long for each lowering, and so many nodes at the end.
DEEP, LOWERING_S, MOST = 300, 1.0, 5


class Chain(nn.Module):
    """A chain of ops with one tanh in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the ops."""
        for step in range(DEEP - 1):
            # Small values, beside which the planted 1e-3 is seen.
            x = x.tanh() if step == DEEP // 3 else x + (-1) ** step
        return x.relu()


def cases(args: argparse.Namespace) -> Iterator[tuple[str, str, Any]]:
    """Yield name, model and a function that reduces it."""
    for name, turn in zip(hidden.hideable(), cycle(TURN), strict=False):
        host = args.model or turn
        if any(fnmatchcase(name, row) for row in args.rows):
            yield name, host, lambda name=name, host=host: hidden.found(name, host)
    for host in hidden.PLANTS if args.planted else ():
        yield f"planted: {host}", host, lambda host=host: hidden.planted(host)
    if args.deep:
        methods = EagerMethod.of_model(Chain(), (torch.randn(4, 4),))
        plant = "aten.tanh", [4, 4], methods, LOWERING_S
        yield f"{DEEP} nodes", "chain", lambda: hidden.with_fault(*plant)


def row_of(name: str, host: str, work: Any) -> Mapping[str, Any]:
    """Reduce one, write its script and run that in a fresh process; return what came of it."""
    start = time.monotonic()
    try:
        result: Reduction = work()
    except EtdevError as error:
        return {"model": host, "left": str(error)[:200], "seconds": round(time.monotonic() - start)}
    row = {
        "model": host,
        "flow": result.flow.name,
        "kind": result.failure.kind,
        "nodes": result.nodes,
        # Views and quantisers count only where there is nothing else.
        "left": len(result.computing),
        "ops": result.computing,
        "captured": len(result.captured),
        "trials": result.trials,
        "seconds": round(result.seconds),
        "load": round(os.getloadavg()[0], 1),
        "finished": result.finished,
    }
    # A planted compiler is not that of a fresh process.
    if host in hidden.HOSTS and not name.startswith("planted"):
        shutil.rmtree(SCRIPTS / name, ignore_errors=True)
        try:
            row["script"] = result.write(SCRIPTS / name, keep_weights=True).name
        except EtdevError as error:
            row["script"] = str(error)[:200]
    return row


def page(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page of the results."""
    rows = {n: row for n, row in kept.items() if row["model"] in hidden.HOSTS and ":" not in n}
    found = {name: row for name, row in rows.items() if _is_found(name, row)}
    trials, seconds = (
        statistics.median(row[key] for row in found.values()) for key in ("trials", "seconds")
    )
    yield from ("# Faults hidden in real models, and what `etdev reduce` made of them", "")
    yield (
        "Made by `python -m benchmarks.reduction --page` of `results/reduction.json`. The repro of "
        f"each row runs in the middle of a model. {len(found)} of {len(rows)} rows came to at most "
        f"{MOST} computing nodes, in a median of {trials:g} trials and {seconds:g} s, on two cores "
        "that others used as well: `load` is the number of processes that ran or waited in the "
        "last minute. Each trial is a lowering and its calls."
    )
    head = ("row", "model", "failure", "nodes", "left", "trials", "seconds", "load", "script")
    yield from _table(
        head,
        (
            (
                name,
                row["model"],
                f"{row['kind']} in {row['flow']}",
                *_counts(row),
                row.get("script", ""),
            )
            for name, row in found.items()
        ),
    )
    yield from ("", "## Not found, or of more nodes")
    left = ((name, row) for name, row in rows.items() if name not in found)
    yield from _table(("row", "model", "why"), ((n, row["model"], _why(row)) for n, row in left))
    yield from ("", "## Planted in XNNPACK's compiler")
    head = ("model", "nodes", "left", "trials", "seconds", "load")
    yield from _table(
        head,
        ((name, *_counts(row)) for name, row in kept.items() if name not in rows),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield from ("", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"


def _counts(row: Mapping[str, Any]) -> tuple[Any, ...]:
    ops = ", ".join(op.removeprefix("aten.") for op in row["ops"])
    return row["nodes"], ops, row["trials"], row["seconds"], row.get("load", "")


def _why(row: Mapping[str, Any]) -> str:
    left = row["left"]
    if isinstance(left, str):
        return left
    if not _runs(row):
        return str(row["script"])
    what = f"{row['kind']} of {left} nodes after {row['seconds']} s"
    return what if row["finished"] else f"{what}, not finished"


def _runs(row: Mapping[str, Any]) -> bool:
    return str(row.get("script", ".py")).endswith(".py")


def _is_found(name: str, row: Mapping[str, Any]) -> bool:
    """Return True if a reduction ended with what the row is about, in a few nodes."""
    is_small = isinstance(row["left"], int) and row["left"] <= MOST
    return is_small and _runs(row) and row["kind"] == quirks.load(name).expects


def main() -> None:
    """Reduce what is asked for, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--model", choices=[*hidden.HOSTS], help="hide all rows in this one")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    for name, host, work in cases(args):
        if args.missing and name in json.loads(RESULTS.read_text()):
            continue
        row = row_of(name, host, work)
        # Another process may have written rows meanwhile.
        known = json.loads(RESULTS.read_text()) | {name: row}
        RESULTS.write_text(by_line(dict(sorted(known.items())), 1) + "\n")
        print(name, json.dumps(row), flush=True)
    if args.page:
        PAGE.write_text("\n".join(page(json.loads(RESULTS.read_text()))) + "\n")


if __name__ == "__main__":
    main()
