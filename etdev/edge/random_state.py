"""The generators of random numbers, which a lowering leaves as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch


@contextmanager
def untouched_random_state() -> Iterator[None]:
    """Restore the random generators of Python, NumPy and torch afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch_random_state():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def torch_random_state() -> AbstractContextManager[None]:
    """Restore the random generators of torch afterwards, on all devices in use."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if used else ()
    return torch.random.fork_rng(devices)
