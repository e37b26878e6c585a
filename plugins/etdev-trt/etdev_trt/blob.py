"""A compiled delegate: what torch-tensorrt's serialiser writes in front of an engine.

The layout is that of its `executorch/serialization.py`: a header, metadata as JSON, the engine.
TR02 has aliased outputs in the metadata, TR01 has none; the rest is the same.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from etdev import Device
from etdev.errors import DeviceError

MAGICS = (b"TR01", b"TR02")
# Magic, where the metadata begins, its size, where the engine begins, its size, reserved; in bytes.
_HEADER = struct.Struct("<4sIIIQ8s")


def device_of(payload: bytes) -> Device | None:
    """Where the runtime will run a delegate's engine; None if the payload is damaged.

    The payload is not trusted: nothing outside it is read, and nothing in it is run.
    """
    metadata = _metadata(payload)
    if metadata is None:
        return None
    try:
        # The runtime takes the first GPU where none is written.
        return Device("cuda", metadata.get("device_id", 0))
    except DeviceError:
        return None


def _metadata(payload: bytes) -> dict[str, Any] | None:
    if len(payload) < _HEADER.size:
        return None
    magic, start, size, engine, engine_size, _ = _HEADER.unpack_from(payload)
    end = start + size
    if magic not in MAGICS or not _HEADER.size <= start <= end <= engine:
        return None
    if engine % 16 or engine + engine_size > len(payload):
        return None
    try:
        found = json.loads(payload[start:end], object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as the runtime reads it: where a key is there twice, it stops at the first."""
    return dict(reversed(pairs))
