"""The parts of the survey, and their models."""

from __future__ import annotations

import collections
import tempfile
from pathlib import Path
from typing import Any

import suites
import torch
from models.opdb import ENTRIES, UNDEFINED, exported

from survey import cells
from survey.judge import Subject

DTYPES = ("float32", "int64", "bool", "float16")
# Ops that return the places of equal values in any order, as PyTorch's documentation says.
_UNORDERED = {"argsort", "kthvalue", "median", "nanmedian", "sort", "topk"}
_OPERATORS = "backends/test/suite/operators"


def names(part: str) -> list[str]:
    """Return the models of a part."""
    if part == "zoo":
        return list(cells.ANIMALS)
    dtype = getattr(torch, part)
    return [n for n, entry in ENTRIES.items() if dtype in entry.dtypes and n not in UNDEFINED]


def subject(part: str, name: str) -> Subject | None:
    """Build a model of a part; None if it can't be exported, or has sparse tensors."""
    if part == "zoo":
        return cells.subject(name)
    program = exported(name, getattr(torch, part))
    if program is None:
        return None
    inputs = program.example_inputs[0]
    # ExecuTorch has no sparse tensors.
    return Subject(program, [inputs]) if all(x.layout is torch.strided for x in inputs) else None


def is_unordered(part: str, name: str) -> bool:
    """Return True if a model returns places of values that are equal, in an order left open."""
    return part in ("int64", "bool") and name in _UNORDERED


def suite() -> dict[str, Any]:
    """Run ExecuTorch's operator tests in each flow of tests/suites."""
    with tempfile.TemporaryDirectory() as folder:
        lines = suites.run("flows", [_OPERATORS], Path(folder) / "outcomes.jsonl")
    if not lines:
        raise SystemExit("ExecuTorch's suite ran no test")
    made: dict[str, Any] = collections.defaultdict(dict)
    kinds = {"SUCCESS": "right", "SKIPPED": "skipped"}
    for line in lines:
        kind = "refused" if line["refused"] else kinds.get(line["result"], line["result"].lower())
        name = line["id"].replace(line["flow"], "")
        made[name][line["flow"]] = {"kind": kind, "text": (line["error"] or "")[:300]}
    return made
