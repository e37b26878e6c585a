"""One lowering at a time in a process, without its caller's modes and without what torch keeps.

While torch traces a model it changes classes and settings that all threads share, so that two at
once break each other and what comes after. A mode, such as FakeTensorMode or a counter of
operations, would see or change whatever a lowering computes.
"""

from __future__ import annotations

import gc
import linecache
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch._logging.structured import INTERN_TABLE
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.graph_module import _loader
from torch.utils._python_dispatch import _disable_current_modes

_tracing = threading.RLock()
# A full collection waits for this many of the middle generation, each of 7,000 new objects.
_NO_FULL_COLLECTION = 1_000_000
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


@cache
def _is_frozen() -> bool:
    """Return True if the heap was frozen when a process first lowered; to count it takes 0.2 s."""
    return gc.get_freeze_count() > 0


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Put off full collections of garbage; a block inside another one changes nothing.

    Building hundreds of small graphs sets off collections that walk all of torch each time, and the
    graphs made so far, which are still needed.
    """
    frozen, thresholds = _is_frozen(), gc.get_threshold()
    if thresholds[2] == _NO_FULL_COLLECTION:
        yield
        return
    gc.set_threshold(*thresholds[:2], _NO_FULL_COLLECTION)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            # Freezing begins to count anew, so that no full collection is due at once.
            gc.freeze()
            gc.unfreeze()


@contextmanager
def forgotten_code() -> Iterator[None]:
    """Forget the source of the graphs that are compiled meanwhile, and calls of modules.

    torch.fx keeps the source of hundreds of graphs a lowering, and torch the shapes of each call
    of a delegate, and with them its weights. Graphs run as before; only a traceback through one of
    them has no source lines.
    """
    before, known = len(_loader.eval_cache), len(FakeTensorMode.cache)
    try:
        yield
    finally:
        # In the order in which they were added.
        for name in list(_loader.eval_cache)[before:]:
            del _loader.eval_cache[name]
            linecache.cache.pop(name, None)
        for call in list(FakeTensorMode.cache)[known:]:
            if any(isinstance(value, torch.nn.Module) for value in call.key):
                del FakeTensorMode.cache[call]


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
