"""Global settings of torch, NumPy and Python that a plugin must leave as they were."""

from __future__ import annotations

import os
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import field, frozen


@frozen
class Setting:
    """A setting of this process that users' code relies on; messages show its values if `shown`."""

    name: str
    read: Callable[[], Any] = field(eq=False)
    write: Callable[[Any], object] = field(eq=False)
    shown: bool = field(default=True, eq=False)

    def change(self, before: Any) -> str:
        """Put an earlier value back; describe the change, or return an empty text."""
        after = self.read()
        if after == before:
            return ""
        self.write(before)
        if isinstance(before, dict):
            keys = before.keys() | after.keys()
            changed = sorted(key for key in keys if before.get(key) != after.get(key))
            return f"{self.name} ({', '.join(changed)})"
        return f"{self.name} from {before} to {after}" if self.shown else self.name


def _set_environment(values: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    # Leaving this context clears Python's cache of the filters that warnings matched.
    with warnings.catch_warnings():
        pass


SETTINGS = (
    Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting(
        "torch's default device",
        torch.get_default_device,
        # With "cpu" every op would go through a torch mode.
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    Setting("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting(
        "torch's deterministic mode",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "torch's random state",
        lambda: torch.get_rng_state().tolist(),
        lambda state: torch.set_rng_state(torch.tensor(state, dtype=torch.uint8)),
        shown=False,
    ),
    Setting(
        "NumPy's random state",
        lambda: pickle.dumps(np.random.get_state()),
        lambda state: np.random.set_state(pickle.loads(state)),
        shown=False,
    ),
    Setting("Python's random state", random.getstate, random.setstate, shown=False),
    Setting("the environment", lambda: dict(os.environ), _set_environment),
    Setting("the working directory", os.getcwd, os.chdir),
    Setting("Python's recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Setting("Python's warning filters", lambda: list(warnings.filters), _set_filters, shown=False),
)


def read() -> list[Any]:
    """Return the values of all settings, in their order."""
    return [setting.read() for setting in SETTINGS]


def put_back(values: Sequence[Any]) -> list[str]:
    """Put back the values that `read` returned; return a text for each that had changed."""
    changes = [setting.change(value) for setting, value in zip(SETTINGS, values, strict=True)]
    return [change for change in changes if change]
