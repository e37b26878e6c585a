"""The bytes of a CudaBackend delegate: keys of its library and weights in the named data."""

from __future__ import annotations

import struct

from etdev import Device
from etdev.errors import ArtifactError

BACKEND_ID = "CudaBackend"
# ExecuTorch 1.5 starts its payload with it; that of 1.4 is two lines of text.
_MAGIC = b"ETCUDAFQN3"
# The next release's, with a library for each kind of GPU: the numbers that precede its key.
_VARIANTS = {b"ETCUDAFQN4": struct.Struct("<II"), b"ETCUDAFQN5": struct.Struct("<III")}
# nbytes, dtype, device type, offset, number of dimensions of one weight.
_WEIGHT = struct.Struct("<QiiqI")
_LENGTH = struct.Struct("<I")


def device_of(payload: bytes, arguments: int | None = None) -> Device | None:
    """Return the device that a delegate runs on: cuda:0, since the payload names none.

    The runtime opens every delegate on the current CUDA device of the process.

    Raises:
        ArtifactError: The payload names no library and no weights.
    """
    if not keys(payload):
        what = "is damaged: its payload does not name its library and weights"
        raise ArtifactError(BACKEND_ID, what, "lower the model again")
    return Device("cuda", 0)


def keys(payload: bytes) -> tuple[str, ...]:
    """Return the keys under which a delegate finds its library and its weights.

    Args:
        payload: Untrusted; every length in it is checked.

    Returns:
        The keys in the order of the payload, each once; none if it is not a payload of CudaBackend.
    """
    try:
        named = _named(payload)
    except (struct.error, UnicodeDecodeError, ValueError):
        return ()
    return tuple(dict.fromkeys(named))


def _named(payload: bytes) -> list[str]:
    magic, at = payload[: len(_MAGIC)], len(_MAGIC)
    if magic == _MAGIC:
        library, at = _text(payload, at)
        return [library, *_weights(payload, at)]
    if magic not in _VARIANTS:
        library, weights = payload.decode().split("\n")
        return [library, weights] if library.endswith("_so_blob") else []
    (count,) = _LENGTH.unpack_from(payload, at)
    at += _LENGTH.size
    libraries = []
    for _ in range(count):
        library, at = _text(payload, at + _VARIANTS[magic].size)
        libraries.append(library)
    return [*libraries, *_weights(payload, at)]


def _weights(payload: bytes, at: int) -> list[str]:
    """Return the keys of the weights, whose list is the rest of a payload."""
    (count,) = _LENGTH.unpack_from(payload, at)
    at += _LENGTH.size
    named = []
    for _ in range(count):
        _, at = _text(payload, at)
        key, at = _text(payload, at)
        named.append(key)
        dimensions = _WEIGHT.unpack_from(payload, at)[-1]
        # A size and a stride of eight bytes each.
        at += _WEIGHT.size + 16 * dimensions
    if at != len(payload):
        raise ValueError("bytes follow the last weight")
    return named


def _text(payload: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(payload, at)
    start = at + _LENGTH.size
    if start + length > len(payload):
        raise ValueError("text runs past the end")
    return payload[start : start + length].decode(), start + length
