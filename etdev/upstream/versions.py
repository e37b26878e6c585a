"""Differences between the releases of torch that etdev supports."""

from __future__ import annotations

from functools import cache

from packaging.version import Version


@cache
def sorts_inputs() -> bool:
    """Return True if torch fuses nodes into a subgraph with its inputs in graph order.

    It does from 2.14 on. ExecuTorch's own path to a delegate, and so its bytes, have that order.
    """
    import torch

    return Version(torch.__version__).release >= (2, 14)
