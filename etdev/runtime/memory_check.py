"""Memory: what a method needs, refused where this machine has less.

A file says how much; the runtime would take it, and the system end this process or another.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

import torch

from etdev.errors import RunError
from etdev.pte.artifact import MethodArtifact, Value
from etdev.schema.report.sheet import size


def check_memory(method: MethodArtifact) -> None:
    """Refuse a method whose planned memory and inputs this machine can't hold.

    Raises:
        RunError: It needs more.
    """
    planned = sum(arena.size_bytes for arena in method.arenas)
    needed, memory = planned + sum(_sizes(method.inputs)), _machine()
    if memory is not None and needed > memory:
        raise RunError(
            f"method {method.name!r}",
            f"needs {size(needed)} of memory, this machine has {size(memory)}",
            "run it on a larger machine, or lower it for smaller inputs",
        )


def _sizes(values: Iterable[Value]) -> Iterable[int]:
    for value in values:
        dtype = getattr(torch, value.dtype, None) if value.dtype else None
        if isinstance(dtype, torch.dtype):
            yield dtype.itemsize * math.prod(max(count, 0) for count in value.sizes)


def _machine() -> int | None:
    """The physical memory of this machine in bytes; None if it doesn't tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
