"""The devices that XNNPACK runs on, found without importing torch."""

from __future__ import annotations

from etdev import CPU, Probe


def probe() -> Probe:
    """Return the CPU, since XNNPACK is in the wheel of ExecuTorch, which etdev needs."""
    return Probe([CPU])
