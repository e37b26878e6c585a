"""Faults hidden in real models, and how far `etdev reduce` gets with each of them.

PYTHONPATH=tests python -m benchmarks.reduction --missing --rows 'kernel-*' --models 'U-Net*'

The repro of each row of the tables runs in the middle of a model. A row of the result is kept as
soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from etdev_reduce.reduction import Reduction
from support import hidden
from support.results import by_line
from torch import nn

from etdev import EtdevError
from etdev.app import EagerMethod

RESULTS = Path("tests/benchmarks/results/reduction.json")
# The small ones three times as often.
TURN = (*(("U-Net block", "decoder step") * 3), "MobileNetV2", "MiniLM")
BUDGET_S = 240.0
# Issue 56: as many nodes, and so long for each lowering.
DEEP, LOWERING_S = 300, 1.0


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
    if args.rows:
        for name, host in zip(hidden.hideable(), cycle(TURN), strict=False):
            is_asked = any(fnmatchcase(name, row) for row in args.rows)
            if is_asked and fnmatchcase(host, args.models):
                yield name, host, lambda name=name, host=host: hidden.found(name, host, BUDGET_S)
    if args.planted:
        for host in filter(lambda host: fnmatchcase(host, args.models), hidden.PLANTS):
            yield f"planted: {host}", host, lambda host=host: hidden.planted(host)
    if args.deep:
        methods = EagerMethod.of_model(Chain(), (torch.randn(4, 4),))
        plant = "aten.tanh", [4, 4], methods, LOWERING_S
        yield f"{DEEP} nodes", "chain", lambda: hidden.with_fault(*plant)


def row_of(host: str, work: Any) -> Mapping[str, Any]:
    """Reduce one; return what came of it."""
    start = time.monotonic()
    try:
        result: Reduction = work()
    except EtdevError as error:
        return {"model": host, "left": str(error)[:200], "seconds": round(time.monotonic() - start)}
    return {
        "model": host,
        "flow": result.flow.name,
        "kind": result.failure.kind,
        "nodes": result.nodes,
        # Views and quantisers count only where there is nothing else.
        "left": len(result.case.computing or result.case.nodes),
        "ops": [str(node.target) for node in result.case.computing or result.case.nodes],
        "captured": len(result.case.captured),
        "trials": result.trials,
        "seconds": round(result.seconds),
        "finished": result.finished,
    }


def main() -> None:
    """Reduce what is asked for, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--models", default="*")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--missing", action="store_true")
    args = parser.parse_args()
    for name, host, work in cases(args):
        if args.missing and name in json.loads(RESULTS.read_text()):
            continue
        row = row_of(host, work)
        # Another process may have written rows meanwhile.
        known = json.loads(RESULTS.read_text()) | {name: row}
        RESULTS.write_text(by_line(dict(sorted(known.items())), 1) + "\n")
        print(name, json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
