"""The results of a backend's compiler as an entry of the cache, and back.

A buffer with the very bytes of one of the program's weights is kept as their digest.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.scalar_type import ScalarType

from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.entry import CONVERTER, MALFORMED, Entry, natural
from etdev.delegate.results import unknown_fields
from etdev.errors import CacheError
from etdev.upstream.emission import DataEntry, NamedDataStoreOutput, content_of

_Named = dict[str, DataEntry]
# The fields that an entry holds, and their keys there.
_RESULT = {"processed_bytes": "payload", "debug_handle_map": "handles", "data_store_output": "data"}
_DATA = {"buffers": "buffers", "pte_data": "inside", "external_data": "outside"}
CONVERTER.register_structure_hook(ScalarType, lambda value, _: ScalarType(value))


def packed(results: Sequence[PreprocessResult], key: str, weights: Digests) -> Entry:
    """Make an entry of the results of one call, or raise Uncacheable if it can't keep one."""
    blobs: list[bytes] = []
    return Entry(key, [_packed(result, blobs, weights) for result in results], blobs)


def unpacked(entry: Entry, count: int, who: str, weights: Digests) -> list[PreprocessResult]:
    """Return the results that an entry was made of; the weights are those of its key.

    Raises:
        CacheError: The entry has another number of results, or malformed ones.
    """
    try:
        results = [_unpacked(item, entry.blobs, weights) for item in entry.content]
    except MALFORMED as error:
        raise CacheError(who, "has invalid results", "the next lowering replaces it") from error
    if len(results) != count:
        cure = "etdev cache clear"
        raise CacheError(who, f"has {len(results)} results, not {count}", cure)
    return results


def _packed(result: PreprocessResult, blobs: list[bytes], weights: Digests) -> dict[str, Any]:
    for value, known in ((result, _RESULT), (result.data_store_output, _DATA)):
        if value is not None and (unknown := unknown_fields(value, known)):
            raise Uncacheable(f"the backend returns {unknown}, which an entry can't hold")

    def blob(data: bytes) -> int:
        blobs.append(data)
        return len(blobs) - 1

    payload, data = blob(_content(result.processed_bytes)), result.data_store_output
    if data is not None:
        buffers = map(_content, data.buffers)
        data = {
            "buffers": [weights.find(buffer) or blob(buffer) for buffer in buffers],
            "inside": CONVERTER.unstructure(data.pte_data, _Named),
            "outside": CONVERTER.unstructure(data.external_data, dict[str, _Named]),
        }
    return {"payload": payload, "handles": _literal(result.debug_handle_map), "data": data}


def _unpacked(
    item: Mapping[str, Any], blobs: Sequence[bytes | memoryview], weights: Digests
) -> PreprocessResult:
    kept, data = item["data"], None
    if {*item} - {*_RESULT.values()} or {*(kept or ())} - {*_DATA.values()}:
        raise ValueError(item)
    if kept is not None:
        data = NamedDataStoreOutput(
            buffers=[
                weights.content(place) if isinstance(place, str) else bytes(blobs[natural(place)])
                for place in kept["buffers"]
            ],
            pte_data=CONVERTER.structure(kept["inside"], _Named),
            external_data=CONVERTER.structure(kept["outside"], dict[str, _Named]),
        )
        for entries in (data.pte_data, *data.external_data.values()):
            for key, entry in entries.items():
                if entry.buffer_index >= len(data.buffers) or entry.alignment == 0:
                    raise ValueError(key)
    return PreprocessResult(
        processed_bytes=bytes(blobs[natural(item["payload"])]),
        debug_handle_map=ast.literal_eval(item["handles"]),
        data_store_output=data,
    )


def _content(data: Any) -> bytes:
    """Return the bytes of a buffer of torch's or ExecuTorch's."""
    try:
        return content_of(data)
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
