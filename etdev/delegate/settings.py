"""Settings of torch that a compiler may read, in this process and in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

# With the number of threads in the key, otherwise equal machines would share no cache. A plugin
# whose compiler depends on it says so with cache_key.
_NOT_IN_KEY = frozenset({"threads"})


def settings() -> dict[str, Any]:
    """Return torch's settings, which a worker takes over."""
    return {
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def settings_in_key() -> dict[str, Any]:
    """Return the settings that compiled bytes may depend on, also those no worker takes over."""
    known = {name: value for name, value in settings().items() if name not in _NOT_IN_KEY}
    known["device"] = str(torch.get_default_device())
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            known[f"autocast {kind}"] = str(torch.get_autocast_dtype(kind))
    return known


@contextmanager
def taken_over(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set torch as in another process, given what `settings` returned there."""
    before = settings()
    try:
        _set(wanted)
        yield
    finally:
        _set(before)


def _set(wanted: Mapping[str, Any]) -> None:
    if torch.get_num_threads() != wanted["threads"]:
        torch.set_num_threads(wanted["threads"])
    torch.set_grad_enabled(wanted["grad"])
    torch.set_default_dtype(getattr(torch, wanted["dtype"]))
    torch.set_float32_matmul_precision(wanted["precision"])
    torch.use_deterministic_algorithms(wanted["deterministic"])
