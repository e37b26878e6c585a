"""The entry of the cache: self-contained bytes with a head and a checksum.

magic, which has the version of the format
length of the head, 8 bytes, little-endian
head, JSON: the key, the content, the lengths of the blobs
the blobs
BLAKE3 of all bytes before, 32 bytes
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from attrs import asdict, field, frozen
from blake3 import blake3
from cattrs import Converter

from etdev.errors import CacheError

MAGIC = b"etdev entry 3\n"
_HEAD = len(MAGIC) + 8
_CHECKSUM_BYTES = 32
_CURE = "the next lowering replaces it"
# Errors of reading JSON that anyone may have written.
MALFORMED = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(SyntaxError, RecursionError, MemoryError),
)


@frozen
class Entry:
    """An entry of the cache: a compiled partition and where it came from.

    Args:
        content: What the blobs mean, as JSON.
        blobs: Byte strings that `content` refers to by their numbers.
    """

    key: str
    content: Any
    blobs: Sequence[bytes | memoryview] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the entry as bytes, which are the same for the same entry."""
        head = _Head(self.key, self.content, [len(blob) for blob in self.blobs])
        text = json.dumps(asdict(head), separators=(",", ":")).encode()
        parts = [MAGIC, len(text).to_bytes(8, "little"), text, *self.blobs]
        checksum = blake3()
        for part in parts:
            checksum.update(part)
        return b"".join([*parts, checksum.digest()])

    @classmethod
    def from_bytes(cls, data: bytes, who: str, key: str | None = None) -> Entry:
        """Read the bytes of an entry, which come from `who` and must have the key, if it is given.

        Raises:
            CacheError: The bytes are cut short, altered, of another version or of another key.
        """
        if not data.startswith(MAGIC):
            raise CacheError(who, "is not an entry of this version of etdev", _CURE)
        body = memoryview(data)[:-_CHECKSUM_BYTES]
        if len(body) < _HEAD or blake3(body).digest() != data[-_CHECKSUM_BYTES:]:
            raise CacheError(who, "is damaged: its checksum differs", _CURE)
        start = _HEAD + int.from_bytes(data[len(MAGIC) : _HEAD], "little")
        # The checksum shows damage, not intent: anyone may have written the rest.
        try:
            head = CONVERTER.structure(json.loads(data[_HEAD:start]), _Head)
            ends = list(itertools.accumulate(head.blobs, initial=start))
            if ends[-1] != len(body):
                raise ValueError(head)
        except MALFORMED as error:
            raise CacheError(who, "has a head that can't be read", _CURE) from error
        if key is not None and head.key != key:
            raise CacheError(who, f"is the entry of {head.key}", _CURE)
        blobs = [body[start:end] for start, end in itertools.pairwise(ends)]
        return cls(head.key, head.content, blobs)


@frozen
class _Head:
    key: str
    content: Any
    blobs: list[int]


def natural(value: Any, _: object = None) -> int:
    """Return a number of an entry, which counts or indexes."""
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any, _: object = None) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


# Refuses a number that is negative or a bool, and a text that is not one.
CONVERTER = Converter(detailed_validation=False)
CONVERTER.register_structure_hook(int, natural)
CONVERTER.register_structure_hook(str, _text)
