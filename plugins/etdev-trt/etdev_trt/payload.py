"""The bytes of a TensorRTBackend delegate: what torch-tensorrt writes in front of an engine.

The layout is that of its `executorch/serialization.py`: a header, metadata as JSON, the engine.
TR02 has aliased outputs in the metadata, TR01 has none; the rest is the same.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from etdev import Device
from etdev.errors import DeviceError

BACKEND_ID = "TensorRTBackend"
MAGICS = (b"TR01", b"TR02")
# Magic, offset and size of the metadata, offset and size of the engine, reserved; in bytes.
_HEADER = struct.Struct("<4sIIIQ8s")


def device_of(payload: bytes) -> Device | None:
    """The device that a delegate runs on; None if the payload is damaged.

    The payload is not trusted: nothing outside it is read, and nothing in it is run.
    """
    metadata = _metadata(payload)
    if metadata is None:
        return None
    try:
        # Without one, the runtime takes the first GPU.
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
        metadata = json.loads(payload[start:end], object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError):
        return None
    return metadata if isinstance(metadata, dict) else None


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as the runtime reads it: of equal keys the first counts."""
    return dict(reversed(pairs))
