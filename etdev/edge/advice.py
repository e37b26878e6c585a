"""The advice of torch on a model that it can't trace or convert, in an error of etdev."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from etdev.errors import SourceError, first_line
from etdev.graph.tracebacks import place_of
from etdev.schema.method import Method
from etdev.upstream.tracing import restricting_frames
from etdev.upstream.trees import pytree

_LOGS = re.compile(r' For more information, run with TORCH_LOGS="[^"]*"\.')
# The dimensions that a method constrains; what follows each is about torch's own functions.
_VIOLATION = re.compile(r"^  - (.+?)\.?(?: If you're using .*)?$", re.MULTILINE)
_FIXES = re.compile(r"^Suggested fixes:\n((?:  .+\n?)+)", re.MULTILINE)
# A dynamic size whose example is 0 or 1.
_ONE = re.compile(r"as dynamic but your code specialized it to be a constant \([01]\)")
_CHECK = re.compile(r"^  \d\. (torch\._check\(.*\))$", re.MULTILINE)
_OWN = os.path.join(Path(__file__).parents[1], "")
# The line of the node at which one of torch's or ExecuTorch's passes failed.
_WHILE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_STACK = re.compile(r"\n(?:Original traceback:\n|stack trace: )")
# Torch's frames, and those of code that it generates.
_OTHERS = re.compile(r"^<|site-packages[/\\](torch|torchao|executorch)[/\\]")


def problem_of(error: BaseException, *export: Any, **options: Any) -> str:
    """Return the error of torch.export in one line, with the user's lines that raised it.

    torch.export forgets those that restrict a size, and is called with the other arguments again.
    """
    head, others = _LOGS.sub("", first_line(error)), _VIOLATION.findall(str(error))
    if others:
        more = f", and {len(others) - 1} more such" if others[1:] else ""
        head = f"{head} {others[0]}{more}"
    frames = traceback.extract_tb(error.__traceback__)
    stacks = [[(frame.filename, frame.lineno) for frame in frames]]
    if others:
        with suppress(Exception):
            stacks += restricting_frames(*export, **options)
    lines = dict.fromkeys(line for stack in stacks if (line := _line_of(stack)))
    return f"{head} at {', '.join([*lines][:3])}" if lines else head


def eager_error(method: Method) -> SourceError | None:
    """Return the error about a module that doesn't take its example inputs in eager PyTorch.

    It is None, too, where this machine lacks a kernel or a device.
    """
    inputs, kwargs = method.example()
    if any(isinstance(leaf, np.ndarray) for leaf in pytree.tree_leaves((inputs, kwargs))):
        cure = "give tensors, such as torch.from_numpy(array)"
        return SourceError(method.name, "an example input is a NumPy array", cure)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cast(Any, deepcopy(method.model))
            model(*deepcopy(inputs), **deepcopy(kwargs))
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) or "cuda" in str(error).lower():
            return None
        what = f"forward() fails in eager PyTorch with these inputs: {problem_of(error)}"
        cure = "fix forward(), or give example inputs of the shapes and dtypes that it takes"
        refused = SourceError(method.name, what, cure)
        refused.__cause__ = error
        return refused
    return None


def failed_pass(error: BaseException) -> str:
    """Return the error of a pass over a program in one line, with the node and line it was at."""
    if place := place_of(error):
        return first_line(error) + place
    # Of the verifier's errors, the stack of the first node counts.
    _, stack, *_ = (*_STACK.split(str(error)), "")
    line = _line_of([(file, int(number)) for file, number in _WHILE.findall(stack)])
    return f"{first_line(error)} at {line}" if line else first_line(error)


def _line_of(stack: Iterable[tuple[str, int | None]]) -> str:
    """Return the innermost line that is neither of torch nor of etdev; empty if none is."""
    own = (
        f"{Path(file).name}:{line}"
        for file, line in reversed([*stack])
        if not file.startswith(_OWN) and not _OTHERS.search(file)
    )
    return next(own, "")


def is_guard(error: BaseException) -> bool:
    """Return True if torch had to decide on a number that depends on data."""
    return type(error).__name__ == "GuardOnDataDependentSymNode"


def cure_of(error: BaseException) -> str:
    """Return torch's advice, if it has any."""
    text = str(error)
    if _ONE.search(text):
        return "give an example that is larger than 1 there: torch.export fixes sizes of 0 and 1"
    if fixes := _FIXES.search(text):
        return f"torch suggests {', '.join(map(str.strip, fixes[1].strip().splitlines()))}"
    if checks := _CHECK.findall(text):
        return f"say which it is, before that line: {' or '.join(checks)}"
    if "Could not extract specialized integer" in text:
        how = "take the integer from an integer tensor, as in x.long().item()"
        return f"{how}, and bound it with torch._check"
    if is_guard(error):
        return "a branch on a tensor's values is written with torch.where or torch.cond"
    return "see the cause, or export it yourself and give the ExportedProgram"


def bound_of(error: BaseException) -> str:
    """Return the advice on a number that depends on data, if an error of a pass is about one."""
    if is_guard(error):
        return "say how large a number that depends on data is, such as torch._check(n >= 0)"
    if "Cannot evaluate a finite upper bound" in str(error):
        return "say how large that number may be, such as torch._check(n <= 100)"
    return ""
