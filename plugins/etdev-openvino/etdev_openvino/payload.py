"""The bytes of an OpenvinoBackend delegate."""

from __future__ import annotations

from etdev import CPU, Device

BACKEND_ID = "OpenvinoBackend"


def device_of(payload: bytes) -> Device | None:
    """The device whose memory a delegate reads and writes: the CPU, wherever OpenVINO computes."""
    return CPU
