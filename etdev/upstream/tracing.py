"""One lowering at a time in a process, without its caller's modes.

While torch traces a model it changes classes and settings that all threads share, so that two at
once break each other and what comes after. A mode, such as FakeTensorMode or a counter of
operations, would see or change whatever a lowering computes.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._logging.structured import INTERN_TABLE
from torch.export import _trace
from torch.utils._python_dispatch import _disable_current_modes

_tracing = threading.RLock()
# Warnings about code of torch and ExecuTorch, and about state, which etdev refuses by itself.
_SELF_MADE = (
    r"`isinstance\(treespec, LeafSpec\)`",
    r"The tensor attributes? [^\n]* assigned during export",
    "read_binary is deprecated",
    "This API is experimental",
)


@contextmanager
def exclusive_tracing() -> Iterator[None]:
    """Wait until no other thread lowers, and have no mode of torch's dispatcher on meanwhile."""
    with _tracing, _disable_current_modes(), warnings.catch_warnings():
        for message in _SELF_MADE:
            warnings.filterwarnings("ignore", message)
        yield


def without_dumps() -> AbstractContextManager[Any]:
    """Keep torch.export from printing the graph of a model that it can't trace."""
    return patch.object(_trace, "print", lambda *_, **__: None, create=True)


def restricting_frames(*export: Any, **options: Any) -> list[list[tuple[str, int | None]]]:
    """Return the stacks, as files and lines, of the code that restricts dynamic sizes of a model.

    `torch.export.export` keeps none of them. Takes its arguments, and runs the model once more.
    """
    with patch.object(logging.getLogger("torch.export._draft_export"), "disabled", True):
        program: Any = torch.export.draft_export(*export, **options)
    stacks = (failure.data.get("user_stack") or () for failure in program._report.failures)
    # The report lacks files that torch named before.
    files = {number: name for name, number in INTERN_TABLE.items()}
    return [[(files[f["filename"]], f["line"]) for f in stack] for stack in stacks]
