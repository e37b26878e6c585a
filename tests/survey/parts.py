"""The parts of the survey, and their models."""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Sequence
from pathlib import Path

import suites
import torch
from support.models.opdb import ENTRIES, UNDEFINED, exported

from survey import cells, processors
from survey.judge import ORDERS, THEIRS, Subject, Verdict
from survey.table import Verdicts, kind_of

DTYPES = ("float32", "int64", "bool", "float16")
NAMES = ("zoo", "suite", *DTYPES, *(processors.PARTS if processors.found() else ()))
# Ops that return the places of equal values in any order, as PyTorch's documentation says.
_UNORDERED = {"argsort", "kthvalue", "median", "nanmedian", "sort", "topk"}
# Dtypes in which the values of their samples repeat.
_REPEATING = ("int64", "bool", "float16")
_OPERATORS = "backends/test/suite/operators"
# The flows of tests/suites/flows.py, and what ExecuTorch's suite says of each model.
_FLOWS = {
    "executorch": THEIRS,
    "etdev_cpu": "cpu",
    "etdev_openvino_cpu": "openvino, cpu",
    "etdev_cpu_openvino": "cpu, openvino",
    "etdev_partitioner": "partitioner",
}
_KINDS = {
    "SUCCESS": "right",
    "SKIPPED": "skipped",
    "LOWER_FAIL": "raw",
    "PTE_LOAD_FAIL": "failed",
    "PTE_RUN_FAIL": "failed",
    "OUTPUT_MISMATCH_FAIL": "wrong",
    "UNKNOWN_FAIL": "raw",
}


def orders(part: str) -> Sequence[str]:
    """Return the orders of plugins in which a part is judged, or the processors on which it is."""
    return processors.known() if part in processors.PARTS else [*ORDERS]


def expected(part: str) -> dict[tuple[str, str], str] | None:
    """Return the verdicts that should not be "right", by model and order; None if any may be."""
    if part in processors.PARTS:
        return processors.EXPECTED
    return cells.EXPECTED if part == "zoo" else None


def names(part: str) -> list[str]:
    """Return the models of a part."""
    if part == "zoo":
        return list(cells.ANIMALS)
    if part in processors.PARTS:
        return list(processors.PARTS[part]())
    dtype = getattr(torch, part)
    return [n for n, entry in ENTRIES.items() if dtype in entry.dtypes and n not in UNDEFINED]


def subject(part: str, name: str) -> Subject | processors.Decoder | None:
    """Build a model of a part; None if it can't be exported, or has sparse tensors."""
    if part == "zoo":
        return cells.subject(name)
    if part in processors.PARTS:
        return processors.PARTS[part]()[name]()
    program = exported(name, getattr(torch, part), filled=True)
    if program is None:
        return None
    inputs = program.example_inputs[0]
    # ExecuTorch has no sparse tensors.
    return Subject(program, [inputs]) if all(x.layout is torch.strided for x in inputs) else None


def is_unordered(part: str, name: str) -> bool:
    """Return True if a model returns places of values that are equal, in an order left open."""
    return part in _REPEATING and name in _UNORDERED


def suite() -> dict[str, Verdicts]:
    """Run ExecuTorch's operator tests in each flow of tests/suites."""
    with tempfile.TemporaryDirectory() as folder:
        lines = suites.run("flows", [_OPERATORS], Path(folder) / "outcomes.jsonl")
    if not lines:
        raise SystemExit("ExecuTorch's suite ran no test")
    made: dict[str, Verdicts] = collections.defaultdict(dict)
    for line in lines:
        kind = "refused" if line["refused"] else _KINDS[line["result"]]
        if kind == "skipped" and line["error"]:
            # PyTorch itself can't compute it.
            kind = "no reference"
        name = line["id"].replace(line["flow"], "").replace("[]", "").replace("[-", "[")
        # A test of several models ends at the first one that fails.
        made[name][_FLOWS[line["flow"]]] = str(Verdict(kind, line["error"] or ""))
    for orders in made.values():
        first = next(iter(orders.values()))
        if all(kind_of(verdict) == "no reference" for verdict in orders.values()):
            orders.clear()
            orders["no reference"] = first
    return made
