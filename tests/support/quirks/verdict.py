"""Verdicts on repros: the calls of what was lowered are run and compared with eager PyTorch."""

from __future__ import annotations

import copy
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch.utils import _pytree as pytree

from support.quirks import Repro, load

RIGHT, WRONG, ERROR = "right", "wrong", "error"
REFUSED, WARNED = "refused", "warned"
# Lowers a repro; returns the bytes of a .pte.
Lower = Callable[[Repro], Any]


@frozen
class Verdict:
    """A verdict on one repro.

    Args:
        name: Of the repro.
        kind: `right`, `wrong`, `error`, `crash` or `hang`; `broken` for a repro that can't be
            made; of etdev also `refused`, or `warned` of what is not right.
        detail: In one line, what was wrong or failed.
        stage: `lower` or `run`.
        seconds: The time that it took.
        cause: The error that ExecuTorch's runtime logged, if any.
    """

    name: str
    kind: str
    detail: str = ""
    stage: str = "run"
    seconds: float = 0.0
    cause: str = ""

    def __str__(self) -> str:
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.kind:8} {self.detail}{cause}".rstrip()


def judge(
    name: str,
    lower: Lower,
    refusals: tuple[type[Exception], ...] = (),
    warning: type[Warning] | None = None,
) -> Verdict:
    """Lower a repro, run its calls and compare them with eager PyTorch.

    Args:
        name: Of the repro.
        lower: Lowers it.
        refusals: The errors that refuse a model by name.
        warning: What is said of a model that is lowered and not right.
    """
    start, stage = time.perf_counter(), "lower"
    repro = load(name)
    eager = copy.deepcopy(repro.methods)
    said: list[Any] = []
    try:
        with torch.set_grad_enabled(repro.gradients), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            buffer = lower(repro)
        stage = "run"
        # From a file, as a user would: some faults hide where the bytes are in memory.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "repro.pte")
            path.write_bytes(buffer)
            kind, detail = _run(repro, eager, path)
    except refusals as error:
        kind, detail = REFUSED, _line(error)
    except Exception as error:
        kind, detail = ERROR, _line(error)
    texts = [str(each.message) for each in said if warning and each.category is warning]
    if kind not in (RIGHT, REFUSED) and texts:
        kind, detail = WARNED, texts[0]
    return Verdict(name, kind, detail, stage, time.perf_counter() - start)


def _run(repro: Repro, eager: dict[str, Any], path: Path) -> tuple[str, str]:
    """Run the calls of a repro one after the other, each method with its state."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    loaded = {name: program.load_method(name) for name in eager}
    for index, (name, inputs) in enumerate(repro.steps):
        given = list(copy.deepcopy(inputs))
        try:
            with torch.no_grad():
                expected: Any = _flat(eager[name](*copy.deepcopy(inputs)))
        except Exception as error:
            expected = error
        try:
            outputs = copy.deepcopy(list(loaded[name].execute(given)))
        except Exception as error:
            if isinstance(expected, Exception):
                continue
            return ERROR, f"call {index}: {_line(error)}"
        if isinstance(expected, Exception):
            return WRONG, f"call {index}: gives values, and eager raises {_line(expected)}"
        if problem := _difference(outputs, expected, repro.tolerance):
            return WRONG, f"call {index}: {problem}"
    return RIGHT, ""


def _flat(results: Any) -> list[Any]:
    return [value.clone() if _is_tensor(value) else value for value in pytree.tree_leaves(results)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _difference(outputs: list[Any], expected: list[Any], tolerance: float) -> str:
    """Describe the first output that differs; empty if none does."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs instead of {len(expected)}"
    for index, (output, value) in enumerate(zip(outputs, expected, strict=True)):
        if not _is_tensor(value):
            if output != value:
                return f"output {index} is {output}, not {value}"
            continue
        if (output.dtype, output.shape) != (value.dtype, value.shape):
            given, wanted = ((str(t.dtype)[6:], list(t.shape)) for t in (output, value))
            return f"output {index} is {given[0]} {given[1]}, not {wanted[0]} {wanted[1]}"
        most = tolerance if value.dtype.is_floating_point else 0
        close = torch.isclose(output, value, rtol=most, atol=most, equal_nan=True)
        if not close.all():
            first = (~close).flatten().nonzero()[0, 0]
            pair = [each.contiguous().flatten()[first].item() for each in (output, value)]
            return f"output {index} has {pair[0]} instead of {pair[1]}"
    return ""


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
