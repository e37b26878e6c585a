"""`python -m survey PART...` judges models in all orders of plugins, and records each verdict.

The parts are `zoo`, `suite` (ExecuTorch's operator tests), and torch's database of operators as
`float32`, `int64`, `bool` and `float16`. Verdicts go to tests/benchmarks/results/survey.json after
each model; a model that is there is judged again only with --again.
"""

from __future__ import annotations

import argparse
import collections
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import suites
import torch
from benchmarks import record
from models.opdb import ENTRIES, UNDEFINED, exported

from survey import cells
from survey.judge import ORDERS, THEIRS, Judge, Subject, compared, eager

RESULTS = Path(__file__).parents[1] / "benchmarks/results/survey.json"
DTYPES = ("float32", "int64", "bool", "float16")
OPERATORS = "backends/test/suite/operators"


def subjects(part: str) -> Iterator[tuple[str, Callable[[], Subject | None]]]:
    """Yield the models of a part with functions that build them."""
    if part == "zoo":
        yield from ((name, partial(cells.subject, name)) for name in cells.ANIMALS)
        return
    dtype = getattr(torch, part)
    for name, entry in ENTRIES.items():
        if dtype in entry.dtypes and name not in UNDEFINED:
            yield name, partial(_operator, name, dtype)


def _operator(name: str, dtype: torch.dtype) -> Subject | None:
    program = exported(name, dtype)
    if program is None:
        return None
    inputs = program.example_inputs[0]
    # ExecuTorch has no sparse tensors.
    return Subject(program, [inputs]) if all(x.layout is torch.strided for x in inputs) else None


def is_random(subject: Subject) -> bool:
    """Return True if eager PyTorch gives other values with another seed."""
    results = []
    for seed in range(2):
        torch.manual_seed(seed)
        results.append(eager(subject))
    return compared(*results, subject).kind == "wrong"


def judged(judge: Judge, build: Callable[[], Subject | None]) -> dict[str, Any]:
    """Judge a model in all orders, and in ExecuTorch's own path where one is not right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = build()
    if subject is None:
        return {"not exported": {"kind": "not exported"}}
    if is_random(subject):
        return {"random": {"kind": "random"}}
    made: dict[str, Any] = {}
    for order in ORDERS:
        if order == THEIRS and all(known["kind"] == "right" for known in made.values()):
            continue
        start = time.perf_counter()
        verdict = judge.verdict(subject, order)
        made[order] = {"kind": verdict.kind, "error": verdict.error, "text": verdict.text[:300]}
        made[order]["seconds"] = round(time.perf_counter() - start, 2)
    return made


def suite() -> dict[str, Any]:
    """Run ExecuTorch's operator tests in each flow of tests/suites."""
    with tempfile.TemporaryDirectory() as folder:
        lines = suites.run("flows", [OPERATORS], Path(folder) / "outcomes.jsonl")
    if not lines:
        raise SystemExit("ExecuTorch's suite ran no test")
    made: dict[str, Any] = collections.defaultdict(dict)
    kinds = {"SUCCESS": "right", "SKIPPED": "skipped"}
    for line in lines:
        kind = "refused" if line["refused"] else kinds.get(line["result"], line["result"].lower())
        name = line["id"].replace(line["flow"], "")
        made[name][line["flow"]] = {"kind": kind, "text": (line["error"] or "")[:300]}
    return made


def summary(models: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Count the kinds of verdicts by order."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for orders in models.values():
        for order, verdict in orders.items():
            counts[order][verdict["kind"]] += 1
    return {order: dict(sorted(kinds.items())) for order, kinds in counts.items()}


def below(models: dict[str, Any]) -> list[str]:
    """Name the cells that are not right where ExecuTorch's own path is."""
    return [
        f"{name} | {order}"
        for name, orders in models.items()
        for order, verdict in orders.items()
        if verdict["kind"] != "right" and orders.get(THEIRS, {}).get("kind") == "right"
    ]


def main() -> None:
    """Judge, print, save."""
    parser = argparse.ArgumentParser(prog="survey", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], metavar="PART")
    parser.add_argument("--again", action="store_true", help="judge what was judged before")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no model after this")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"parts": {}}
    judge, end = Judge(), time.monotonic() + 60 * options.minutes
    for part in options.parts or ["zoo", "suite", *DTYPES]:
        own = known["parts"].setdefault(part, {"models": {}})
        if part == "suite":
            own["models"] = suite()
        for name, build in () if part == "suite" else subjects(part):
            if time.monotonic() > end or (name in own["models"] and not options.again):
                continue
            own["models"][name] = judged(judge, build)
            kinds = {order: v["kind"] for order, v in own["models"][name].items()}
            record.console.print(f"{part} {name}: {kinds}")
            _save(known, part)
        _save(known, part)
        for order, kinds in own["summary"].items():
            record.console.print(f"{part} | {order} | {kinds}")
    judge.process.close()


def _save(known: dict[str, Any], part: str) -> None:
    own = known["parts"][part]
    own.update(summary=summary(own["models"]), below=below(own["models"]))
    own["circumstances"] = {k: v for k, v in record.circumstances().items() if k != "timing"}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
