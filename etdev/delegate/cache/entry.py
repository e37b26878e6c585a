"""The entry of the cache: self-contained bytes with a head and a checksum.

magic, which has the version of the format
length of the head, 8 bytes, little-endian
head, JSON: the key, a description, the content, the lengths of the blobs
the blobs
BLAKE3 of all bytes before, 32 bytes
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen
from blake3 import blake3

from etdev.errors import CacheError

MAGIC = b"etdev entry 2\n"
_HEAD = len(MAGIC) + 8
_CHECKSUM_BYTES = 32


@frozen
class Entry:
    """An entry of the cache: a compiled partition and where it came from.

    Args:
        key: Its key.
        about: For people: plugin, backend, device, number of nodes.
        content: What the blobs mean, as JSON.
        blobs: Byte strings that `content` refers to by their numbers.
    """

    key: str
    about: Mapping[str, str]
    content: Any
    blobs: Sequence[bytes | memoryview] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the entry as bytes, which are the same for the same entry."""
        head = {
            "key": self.key,
            "about": dict(self.about),
            "content": self.content,
            "blobs": [len(blob) for blob in self.blobs],
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        parts = [MAGIC, len(text).to_bytes(8, "little"), text, *self.blobs]
        checksum = blake3()
        for part in parts:
            checksum.update(part)
        return b"".join([*parts, checksum.digest()])

    @classmethod
    def from_bytes(cls, data: bytes, who: str, key: str | None = None) -> Entry:
        """Read the bytes of an entry.

        Args:
            data: The bytes.
            who: Where they come from, for messages.
            key: The key that the entry must have; None for any.

        Raises:
            CacheError: The bytes are cut short, altered, of another version or of another key.
        """
        cure = "etdev cache verify removes it"
        if not data.startswith(MAGIC):
            raise CacheError(who, "is not an entry of this version of etdev", cure)
        body = memoryview(data)[:-_CHECKSUM_BYTES]
        if len(body) < _HEAD or blake3(body).digest() != data[-_CHECKSUM_BYTES:]:
            raise CacheError(who, "is damaged: its checksum differs", cure)
        start = _HEAD + int.from_bytes(data[len(MAGIC) : _HEAD], "little")
        # The checksum shows damage, not intent: anyone may have written the rest.
        try:
            entry = _entry(json.loads(data[_HEAD:start]), body[start:])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CacheError(who, "has a head that can't be read", cure) from error
        if key is not None and entry.key != key:
            raise CacheError(who, f"is the entry of {entry.key}", "etdev cache verify")
        return entry


def _entry(head: dict[str, Any], blobs: memoryview) -> Entry:
    lengths, about = head["blobs"], dict(head["about"])
    ends = list(itertools.accumulate(lengths, initial=0))
    texts = [head["key"], *about.values()]
    well_formed = (
        all(type(length) is int and length >= 0 for length in lengths)
        and all(isinstance(text, str) for text in texts)
        and ends[-1] == len(blobs)
    )
    if not well_formed:
        raise ValueError(head)
    parts = [blobs[start:end] for start, end in itertools.pairwise(ends)]
    return Entry(head["key"], about, head["content"], parts)
