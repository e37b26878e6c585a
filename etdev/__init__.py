"""etdev: lower PyTorch models to ExecuTorch .pte files with whatever backends are installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etdev.adapted import adapt
    from etdev.budget import Budget
    from etdev.claims import Claim, Group, KeepWhole, Refusal
    from etdev.composite import partitioner
    from etdev.device import CPU, Device, Probe
    from etdev.errors import EtdevError, EtdevWarning
    from etdev.hookspecs import hookimpl
    from etdev.limits import Limits
    from etdev.lowered import Lowered
    from etdev.lowerer import Lowerer
    from etdev.pins import Pin
    from etdev.plan import Assumed, Constant, Partition, Plan, Tensor
    from etdev.registry import Registry

# Where each public name lives. Loaded on first use: `import etdev` must not import torch.
_HOMES = {
    "adapted": ("adapt",),
    "budget": ("Budget",),
    "claims": ("Claim", "Group", "KeepWhole", "Refusal"),
    "device": ("CPU", "Device", "Probe"),
    "errors": ("EtdevError", "EtdevWarning"),
    "hookspecs": ("hookimpl",),
    "limits": ("Limits",),
    "lowered": ("Lowered",),
    "lowerer": ("Lowerer",),
    "composite": ("partitioner",),
    "pins": ("Pin",),
    "plan": ("Assumed", "Constant", "Partition", "Plan", "Tensor"),
    "registry": ("Registry",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022
    "Lowerer", "Lowered", "partitioner", "adapt",
    "Plan", "Partition", "Constant", "Tensor", "Device", "CPU",
    "hookimpl", "Claim", "Group", "Refusal", "KeepWhole", "Assumed", "Probe",
    "Registry", "Pin", "Limits", "Budget", "EtdevError", "EtdevWarning",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("etdev")
    if name not in _HOME:
        raise AttributeError(f"module 'etdev' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"etdev.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
