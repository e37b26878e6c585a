"""The entry of the cache: the results of a backend's compiler as bytes, and back.

    magic, which has the version of the format
    length of the head, 8 bytes, little-endian
    head, JSON: the key, a description, the content, the lengths of the blobs
    the blobs
    BLAKE3 of all bytes before, 32 bytes

A buffer with the very bytes of one of the program's weights is kept as their digest.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen
from blake3 import blake3
from cattrs import Converter
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.scalar_type import ScalarType

from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.errors import CacheError
from etdev.upstream.emission import DataEntry, NamedDataStoreOutput, delegate_info

MAGIC = b"etdev entry 2\n"
_HEAD = len(MAGIC) + 8
_CHECKSUM_BYTES = 32
_CURE = "etdev cache verify removes it"
# Errors of reading JSON that anyone may have written.
_MALFORMED = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(SyntaxError, RecursionError, MemoryError),
)


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
        head = _Head(self.key, dict(self.about), self.content, [len(blob) for blob in self.blobs])
        text = json.dumps(asdict(head), separators=(",", ":")).encode()
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
        if not data.startswith(MAGIC):
            raise CacheError(who, "is not an entry of this version of etdev", _CURE)
        body = memoryview(data)[:-_CHECKSUM_BYTES]
        if len(body) < _HEAD or blake3(body).digest() != data[-_CHECKSUM_BYTES:]:
            raise CacheError(who, "is damaged: its checksum differs", _CURE)
        start = _HEAD + int.from_bytes(data[len(MAGIC) : _HEAD], "little")
        # The checksum shows damage, not intent: anyone may have written the rest.
        try:
            head = _CONVERTER.structure(json.loads(data[_HEAD:start]), _Head)
            ends = list(itertools.accumulate(head.blobs, initial=start))
            if ends[-1] != len(body):
                raise ValueError(head)
        except _MALFORMED as error:
            raise CacheError(who, "has a head that can't be read", _CURE) from error
        if key is not None and head.key != key:
            raise CacheError(who, f"is the entry of {head.key}", "etdev cache verify")
        blobs = [body[start:end] for start, end in itertools.pairwise(ends)]
        return cls(head.key, head.about, head.content, blobs)


@frozen
class _Head:
    key: str
    about: dict[str, str]
    content: Any
    blobs: list[int]


def packed(
    results: Sequence[PreprocessResult], key: str, about: Mapping[str, str], weights: Digests
) -> Entry:
    """Make an entry of the results of one call.

    Args:
        results: The results.
        key: The key of the call.
        about: What `etdev cache` shows of the entry.
        weights: The weights that the key was made of.

    Raises:
        Uncacheable: An entry can't keep a result.
    """
    blobs: list[bytes] = []
    return Entry(key, about, [_packed(result, blobs, weights) for result in results], blobs)


def unpacked(entry: Entry, count: int, who: str, weights: Digests) -> list[PreprocessResult]:
    """Return the results that an entry was made of.

    Args:
        entry: The entry.
        count: How many results the call has.
        who: Where the entry comes from, for messages.
        weights: The weights that the key was made of.

    Raises:
        CacheError: The entry has another number of results, or malformed ones.
    """
    try:
        results = [_unpacked(item, entry.blobs, weights) for item in entry.content]
    except _MALFORMED as error:
        raise CacheError(who, "has results that make no sense", _CURE) from error
    if len(results) != count:
        cure = "etdev cache clear"
        raise CacheError(who, f"has {len(results)} results, not {count}", cure)
    return results


def _packed(result: PreprocessResult, blobs: list[bytes], weights: Digests) -> dict[str, Any]:
    if delegate_info(result) is not None:
        raise Uncacheable("the backend adds delegate info to the graph")

    def blob(data: bytes) -> int:
        blobs.append(data)
        return len(blobs) - 1

    payload, data = blob(_content(result.processed_bytes)), result.data_store_output
    if data is not None:
        buffers = map(_content, data.buffers)
        data = {
            "buffers": [weights.find(buffer) or blob(buffer) for buffer in buffers],
            "inside": _CONVERTER.unstructure(data.pte_data, _Named),
            "outside": _CONVERTER.unstructure(data.external_data, dict[str, _Named]),
        }
    return {"payload": payload, "handles": _literal(result.debug_handle_map), "data": data}


def _unpacked(
    item: Mapping[str, Any], blobs: Sequence[bytes | memoryview], weights: Digests
) -> PreprocessResult:
    kept, data = item["data"], None
    if kept is not None:
        data = NamedDataStoreOutput(
            buffers=[
                weights.content(place) if isinstance(place, str) else bytes(blobs[_natural(place)])
                for place in kept["buffers"]
            ],
            pte_data=_CONVERTER.structure(kept["inside"], _Named),
            external_data=_CONVERTER.structure(kept["outside"], dict[str, _Named]),
        )
        for entries in (data.pte_data, *data.external_data.values()):
            for key, entry in entries.items():
                if entry.buffer_index >= len(data.buffers) or entry.alignment == 0:
                    raise ValueError(key)
    return PreprocessResult(
        processed_bytes=bytes(blobs[_natural(item["payload"])]),
        debug_handle_map=ast.literal_eval(item["handles"]),
        data_store_output=data,
    )


def _content(data: Any) -> bytes:
    """Return the bytes of a buffer of torch's or ExecuTorch's."""
    if type(data) is bytes:
        return data
    try:
        # A file-backed buffer can be read as a prefix only.
        return data.prefix(len(data)) if hasattr(data, "prefix") else bytes(memoryview(data))
    except TypeError:
        raise Uncacheable(f"the backend returns a buffer of {type(data).__name__}") from None


def _literal(handles: Any) -> str:
    """Return debug handles as a Python literal."""
    text = repr(handles)
    try:
        same = repr(ast.literal_eval(text)) == text
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise Uncacheable(f"the backend returns the debug handles {text[:60]}")
    return text


def _natural(value: Any, _: object = None) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any, _: object = None) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_Named = dict[str, DataEntry]
_CONVERTER = Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(int, _natural)
_CONVERTER.register_structure_hook(str, _text)
_CONVERTER.register_structure_hook(ScalarType, lambda value, _: ScalarType(value))
