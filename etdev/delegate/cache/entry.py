"""The entry: one call's results as self-contained bytes, with a head and a checksum.

magic, which has the version of the format
length of the head, 8 bytes, little-endian
head, JSON: the key, what the entry is about, the results, the lengths of the blobs
the blobs
BLAKE3 of all bytes before, 32 bytes
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen
from blake3 import blake3

from etdev.errors import CacheError

MAGIC = b"etdev entry 1\n"
_LENGTH_BYTES = 8
_CHECKSUM_BYTES = 32


@frozen
class Entry:
    """What the cache keeps under one key.

    Args:
        key: Its key.
        about: For people: plugin, backend, versions.
        content: What the blobs mean, as JSON has it.
        blobs: Byte strings that `content` refers to by their numbers.
    """

    key: str
    about: Mapping[str, str]
    content: Any
    blobs: Sequence[bytes | memoryview] = field(repr=False)

    def to_bytes(self) -> bytes:
        """The entry as bytes; the same entry always gives the same."""
        head = {
            "key": self.key,
            "about": dict(self.about),
            "content": self.content,
            "blobs": [len(blob) for blob in self.blobs],
        }
        text = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
        parts = [MAGIC, len(text).to_bytes(_LENGTH_BYTES, "little"), text, *self.blobs]
        checksum = blake3()
        for part in parts:
            checksum.update(part)
        return b"".join([*parts, checksum.digest()])

    @classmethod
    def from_bytes(cls, data: bytes, who: str, key: str | None = None) -> Entry:
        """Read what `to_bytes` made.

        Args:
            data: The bytes.
            who: Where they come from, for messages.
            key: The key that they must have; None for any.

        Raises:
            CacheError: They are cut short, altered, of another version or under another key.
        """
        head, start = _head(data, who)
        entry = cls(head["key"], head["about"], head["content"], _blobs(data, start, head["blobs"]))
        if key is not None and entry.key != key:
            raise CacheError(who, f"is the entry of {entry.key}", "etdev cache verify")
        return entry


def _head(data: bytes, who: str) -> tuple[dict[str, Any], int]:
    """The checked head, and where the blobs begin."""
    cure = "etdev cache verify removes it"
    if not data.startswith(MAGIC):
        raise CacheError(who, "is not an entry of this version of etdev", cure)
    end = len(data) - _CHECKSUM_BYTES
    body = memoryview(data)[:end]
    if end < len(MAGIC) + _LENGTH_BYTES or blake3(body).digest() != data[end:]:
        raise CacheError(who, "is damaged: its checksum differs", cure)
    start = len(MAGIC) + _LENGTH_BYTES
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    # The checksum only tells damage from intent: what follows may still be made up.
    try:
        head = json.loads(data[start : start + length])
        lengths = head["blobs"]
        fits = start + length + sum(lengths) == end
        well_formed = (
            fits
            and all(type(size) is int and size >= 0 for size in lengths)
            and isinstance(head["key"], str)
            and _is_text(head["about"])
            and "content" in head
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CacheError(who, "has a head that can't be read", cure) from error
    if not well_formed:
        raise CacheError(who, "has a head that makes no sense", cure)
    return head, start + length


def _is_text(about: object) -> bool:
    return isinstance(about, dict) and all(isinstance(value, str) for value in about.values())


def _blobs(data: bytes, start: int, lengths: Sequence[int]) -> list[memoryview]:
    blobs, view = [], memoryview(data)
    for length in lengths:
        blobs.append(view[start : start + length])
        start += length
    return blobs
