"""The bytes of an XnnpackBackend delegate: a header and a flatbuffer, or the flatbuffer alone."""

from __future__ import annotations

import struct

from etdev import CPU, Device
from etdev.errors import ArtifactError

BACKEND_ID = "XnnpackBackend"
# The class in compiler.py, which would import torch.
COMPILER = "XnnpackByStructure"
# Four zeros, magic, its own size, then offset and size of the flatbuffer and of constant data.
_HEADER = struct.Struct("<4s4sHIIIQ")
_HEADED = b"XH00"
_FLATBUFFERS = (b"XN00", b"XN01")
# A flatbuffer starts with the offset of its root table and has its identifier next.
_ROOT = struct.Struct("<I4s")


def device_of(payload: bytes, arguments: int | None = None) -> Device | None:
    """Return the device that a delegate runs on: always the CPU.

    Raises:
        ArtifactError: XNNPACK's runtime would refuse the payload.
    """
    start, size = flatbuffer_of(payload)
    if size < _ROOT.size or payload[start + 4 : start + 8] not in _FLATBUFFERS:
        raise _damaged("is not one of XNNPACK's flatbuffers")
    if _ROOT.unpack_from(payload, start)[0] >= size:
        raise _damaged("is cut short")
    return CPU


def flatbuffer_of(payload: bytes) -> tuple[int, int]:
    """Return where the flatbuffer begins, and its size.

    Raises:
        ArtifactError: It goes on beyond the end of the payload.
    """
    if len(payload) < _HEADER.size or payload[4:8] != _HEADED:
        return 0, len(payload)
    _, _, _, start, size, data, data_size = _HEADER.unpack_from(payload)
    if max(start + size, data + data_size) > len(payload):
        raise _damaged("is cut short")
    return start, size


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(BACKEND_ID, f"is damaged: its payload {what}", "lower the model again")
