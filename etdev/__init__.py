"""etdev: lower PyTorch models to ExecuTorch .pte files with whatever backends are installed."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etdev import errors
from etdev.errors import *  # noqa: F403
from etdev.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etdev_page.page import Page as Page
    from etdev_tune.outputs import Tuning as Tuning
    from etdev_tune.tune import tune as tune

    from etdev.composed_partitioner import partitioner
    from etdev.edge.conversion import Settings
    from etdev.lowered import Lowered
    from etdev.lowerer import Lowerer
    from etdev.registry import Registry
    from etdev.registry.adapted import adapt
    from etdev.report.difference import diff
    from etdev.schema.caching import CacheSettings
    from etdev.schema.claims import Claim, Group, KeepWhole, Refusal
    from etdev.schema.device import CPU, Device, Probe
    from etdev.schema.limits import Budget, Limits
    from etdev.schema.outcomes import Bypass, Outcome
    from etdev.schema.partition import Assumed, Draft, Partition
    from etdev.schema.pins import Pin
    from etdev.schema.plan import Plan
    from etdev.schema.tensors import Constant, Tensor

# Where each public name lives. Loaded on first use: `import etdev` must not import torch.
# fmt: off
_HOMES = {
    "registry.adapted": ("adapt",),
    "schema.claims": ("Claim", "Group", "KeepWhole", "Refusal"),
    "schema.device": ("CPU", "Device", "Probe"),
    "edge.conversion": ("Settings",),
    "schema.limits": ("Budget", "Limits"),
    "lowered": ("Lowered",),
    "lowerer": ("Lowerer",),
    "composed_partitioner": ("partitioner",),
    "schema.outcomes": ("Bypass", "Outcome"),
    "schema.caching": ("CacheSettings",),
    "schema.pins": ("Pin",),
    "schema.partition": ("Assumed", "Draft", "Partition"),
    "schema.plan": ("Plan",),
    "report.difference": ("diff",),
    "schema.tensors": ("Constant", "Tensor"),
    "registry": ("Registry",),
}
# fmt: on
_HOME = {name: f"etdev.{module}" for module, names in _HOMES.items() for name in names}
# Names that other distributions have, and the extra of etdev that installs each.
_EXTRAS = {
    "Page": ("etdev_page.page", "page"),
    "tune": ("etdev_tune.tune", "tune"),
    "Tuning": ("etdev_tune.outputs", "tune"),
}


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


__all__ = [  # noqa: RUF022
    "Lowerer", "Lowered", "Settings", "partitioner", "adapt", "diff",
    "Plan", "Partition", "Draft", "Constant", "Tensor", "Device", "CPU",
    "hookimpl", "Claim", "Group", "Refusal", "KeepWhole", "Assumed", "Probe", "Bypass",
    "Registry", "Pin", "Limits", "Budget", "CacheSettings", "Outcome",
]  # fmt: skip
__all__ += errors.__all__
__all__ += [name for name, (module, _) in _EXTRAS.items() if _is_installed(module)]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("etdev")
    if name not in _HOME and name not in _EXTRAS:
        raise AttributeError(f"module 'etdev' has no attribute {name!r}")
    module, extra = (_HOME[name], "") if name in _HOME else _EXTRAS[name]
    if extra and not _is_installed(module):
        from etdev.errors import install_hint

        raise ImportError(f"etdev.{name} is not installed; {install_hint(f'etdev-{extra}')}")
    with _without_warnings_of_torchao():
        globals()[name] = getattr(importlib.import_module(module), name)
    return globals()[name]


@contextmanager
def _without_warnings_of_torchao() -> Iterator[None]:
    """Silence torchao while ExecuTorch imports it: it warns of kernels for other machines."""
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def __dir__() -> list[str]:
    return sorted(__all__)
