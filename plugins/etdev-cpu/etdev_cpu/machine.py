"""Requirements of XNNPACK on this machine, checked without importing torch."""

from __future__ import annotations

import importlib.metadata

from etdev import Device, Probe


def probe() -> Probe:
    """Return the CPU, wherever ExecuTorch is installed: its wheel includes XNNPACK."""
    try:
        importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return Probe(unfit="ExecuTorch is not installed; pip install executorch")
    return Probe([Device("cpu")])
