"""The bytes of a TensorRTBackend delegate: torch-tensorrt's header and an engine.

The layout is that of its `executorch/serialization.py`: a header, metadata as JSON, the engine.
TR02 has aliased outputs in the metadata, TR01 has none; the rest is the same.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from etdev import Device
from etdev.errors import ArtifactError, DeviceError

BACKEND_ID = "TensorRTBackend"
MAGICS = (b"TR01", b"TR02")
# Magic, offset and size of the metadata, offset and size of the engine, reserved; in bytes.
_HEADER = struct.Struct("<4sIIIQ8s")
_CURE = "lower the model again"


def device_of(payload: bytes, arguments: int | None = None) -> Device | None:
    """Return the device that a delegate runs on.

    The payload is not trusted: nothing outside it is read, and nothing in it is run.

    Args:
        payload: Its bytes.
        arguments: How many values a call passes; None if that is not known.

    Raises:
        ArtifactError: torch-tensorrt's parser or its runtime would refuse the payload.
    """
    metadata = _metadata(payload)
    bindings = _entries(metadata, "io_bindings", ("name",))
    aliased = _entries(metadata, "aliased_io", ("output", "input"))
    # The runtime binds by position. Without any bindings it asks the engine for them. A file of
    # zero_copy_kv (pytorch/TensorRT#4667) passes none of the outputs that the engine writes to the
    # caller's buffers.
    called_with = (len(bindings), len(bindings) - len(aliased))
    if bindings and arguments is not None and arguments not in called_with:
        raise ArtifactError(
            BACKEND_ID,
            f"has an engine with {len(bindings)} bindings and is called with {arguments} values",
            _CURE,
        )
    index = metadata.get("device_id", 0)
    try:
        # Without one, the runtime takes the first GPU.
        return Device("cuda", index)
    except DeviceError as error:
        raise ArtifactError(
            BACKEND_ID, f"has an engine for GPU {str(index)[:20]}, which can't exist", _CURE
        ) from error


def _metadata(payload: bytes) -> dict[str, Any]:
    if len(payload) < _HEADER.size:
        raise _damaged(f"of {len(payload)} bytes is shorter than its header")
    magic, start, size, engine, engine_size, _ = _HEADER.unpack_from(payload)
    if magic not in MAGICS:
        raise _damaged(f"begins with {magic!r}, not with TR01 or TR02")
    if not _HEADER.size <= start <= start + size <= engine or engine % 16:
        raise _damaged("has its metadata or its engine in the wrong place")
    if engine + engine_size > len(payload) or engine_size == 0:
        raise _damaged("is without its engine, or without the end of it")
    try:
        text = payload[start : start + size].decode()
        metadata = json.loads(text, object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError) as error:
        raise _damaged("has metadata that is not JSON") from error
    if not isinstance(metadata, dict):
        raise _damaged("has metadata that is not a JSON object")
    return metadata


def _entries(metadata: dict[str, Any], name: str, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a list of objects in the metadata, each with some keys at least."""
    entries = metadata.get(name, [])
    whole = isinstance(entries, list) and all(
        isinstance(entry, dict) and all(key in entry for key in keys) for entry in entries
    )
    if not whole:
        raise _damaged(f"has metadata whose {name} can't be read")
    return list(entries)


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(BACKEND_ID, f"is damaged: its payload {what}", _CURE)


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as the runtime reads it: of equal keys the first counts."""
    return dict(reversed(pairs))
