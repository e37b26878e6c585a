"""The bytes of an XnnpackBackend delegate."""

from __future__ import annotations

from etdev import CPU, Device

BACKEND_ID = "XnnpackBackend"


def device_of(payload: bytes) -> Device | None:
    """The device that a delegate runs on: always the CPU, whatever the payload holds."""
    return CPU
