"""The entry of the cache: a ZIP file without compression, whose comment is its checksum.

Its member `entry.json` has the key and the content, and the others are blobs by their names. The
checksum is BLAKE3 of all bytes before the comment.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zipfile import ZipFile, ZipInfo

from attrs import field, fields, frozen
from blake3 import blake3
from cattrs import Converter
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.scalar_type import ScalarType

from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.delegate.results import unknown_fields
from etdev.errors import CacheError
from etdev.upstream.emission import DataEntry, NamedDataStoreOutput, content_of

MAGIC = b"PK\3\4"
CHECKSUM_BYTES = 32
_HEAD = "entry.json"
_CURE = "the next lowering replaces it"


@frozen
class CacheEntry:
    """An entry of the cache.

    Args:
        content: What the blobs mean, as JSON.
        blobs: Byte strings that `content` refers to by their names.
    """

    key: str
    content: Any
    blobs: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, results: Sequence[PreprocessResult], key: str, weights: Digests) -> CacheEntry:
        """Make an entry of the results of one call, or raise Uncacheable if it can't keep one.

        A buffer with the very bytes of one of the program's weights is kept as their digest.
        """
        blobs: dict[str, bytes] = {}

        def place(buffer: Any) -> str:
            try:
                data = content_of(buffer)
            except TypeError:
                what = f"the backend returns a buffer of {type(buffer).__name__}"
                raise Uncacheable(what) from None
            if digest := weights.find(data):
                return digest
            name = str(len(blobs))
            blobs[name] = data
            return name

        content = [_CONVERTER.unstructure(_kept(result, place)) for result in results]
        return cls(key, content, blobs)

    def results(self, count: int, who: str, weights: Digests) -> list[PreprocessResult]:
        """Return the results that this was made of; the weights are those of its key.

        Raises:
            CacheError: The entry has another number of results, or malformed ones.
        """

        def data(place: str) -> bytes:
            return self.blobs[place] if place in self.blobs else weights.content(place)

        try:
            kept = _CONVERTER.structure(self.content, list[_Result])
            results = [_result(each, data) for each in kept]
        except Exception as error:  # Whatever is raised by JSON that anyone may have written.
            raise CacheError(who, "has invalid results", _CURE) from error
        if len(results) != count:
            cure = "etdev cache clear"
            raise CacheError(who, f"has {len(results)} results, not {count}", cure)
        return results

    def to_bytes(self) -> bytes:
        """Return the entry as bytes, which are the same for the same entry."""
        head = json.dumps([self.key, self.content], separators=(",", ":")).encode()
        file = io.BytesIO()
        with ZipFile(file, "w") as zipped:
            zipped.comment = bytes(CHECKSUM_BYTES)
            for name, blob in {_HEAD: head, **self.blobs}.items():
                # By itself, a ZipInfo has a fixed date.
                zipped.writestr(ZipInfo(name), blob)
        with file.getbuffer() as data:
            data[-CHECKSUM_BYTES:] = blake3(data[:-CHECKSUM_BYTES]).digest()
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, who: str, key: str | None = None) -> CacheEntry:
        """Read the bytes of an entry, which come from `who` and must have the key, if it is given.

        Raises:
            CacheError: The bytes are cut short, altered, of another version or of another key.
        """
        if not data.startswith(MAGIC):
            raise CacheError(who, "is not an entry of this version of etdev", _CURE)
        if blake3(memoryview(data)[:-CHECKSUM_BYTES]).digest() != data[-CHECKSUM_BYTES:]:
            raise CacheError(who, "is damaged: its checksum differs", _CURE)
        try:
            with ZipFile(io.BytesIO(data)) as zipped:
                # Members that are compressed may become larger than any memory.
                if sum(member.file_size for member in zipped.infolist()) > len(data):
                    raise ValueError(zipped)
                blobs = {name: zipped.read(name) for name in zipped.namelist()}
            known, content = json.loads(blobs.pop(_HEAD))
        # The checksum shows damage, not intent: anyone may have written the rest.
        except Exception as error:
            raise CacheError(who, "can't be read", _CURE) from error
        if key is not None and known != key:
            raise CacheError(who, f"is the entry of {known}", _CURE)
        return cls(known, content, blobs)


@frozen
class _Data:
    """Named data; a buffer is the name of a blob or the digest of a weight."""

    buffers: list[str]
    pte_data: dict[str, DataEntry]
    external_data: dict[str, dict[str, DataEntry]]


@frozen
class _Result:
    """A result; its payload is as a buffer of named data, its debug handles a Python literal."""

    processed_bytes: str
    debug_handle_map: str
    data_store_output: _Data | None


def _kept(result: PreprocessResult, place: Callable[[Any], str]) -> _Result:
    data = result.data_store_output
    for value, kind in ((result, _Result), (data, _Data)):
        known = [each.name for each in fields(kind)]
        if value is not None and (unknown := unknown_fields(value, known)):
            raise Uncacheable(f"the backend returns {unknown}, which an entry can't hold")
    payload, handles = place(result.processed_bytes), repr(result.debug_handle_map)
    try:
        same = repr(ast.literal_eval(handles)) == handles
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise Uncacheable(f"the backend returns the debug handles {handles[:60]}")
    if data is not None:
        data = _Data(list(map(place, data.buffers)), data.pte_data, data.external_data)
    return _Result(payload, handles, data)


def _result(kept: _Result, content: Callable[[str], bytes]) -> PreprocessResult:
    data, handles = kept.data_store_output, ast.literal_eval(kept.debug_handle_map)
    if data is not None:
        for entries in (data.pte_data, *data.external_data.values()):
            for key, entry in entries.items():
                if entry.buffer_index >= len(data.buffers) or entry.alignment == 0:
                    raise ValueError(key)
        buffers = list(map(content, data.buffers))
        data = NamedDataStoreOutput(buffers, data.pte_data, data.external_data)
    return PreprocessResult(content(kept.processed_bytes), handles, data)


def _natural(value: Any, _: object) -> int:
    """Return a number of an entry, which counts or indexes."""
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


_CONVERTER = Converter(detailed_validation=False, forbid_extra_keys=True)
_CONVERTER.register_structure_hook(int, _natural)
_CONVERTER.register_structure_hook(ScalarType, lambda value, _: ScalarType(value))
