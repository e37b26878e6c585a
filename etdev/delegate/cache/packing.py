"""Results: what a backend's compiler returns becomes an entry, and an entry becomes that again.

A buffer with the very bytes of one of the program's weights is kept as their digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout

from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.weight_copies import Copies
from etdev.errors import CacheError
from etdev.upstream.emission import DataEntry, NamedDataStoreOutput, delegate_info


class Unstorable(Exception):
    """A result has something that an entry can't keep; the text says what."""


def packed(
    results: Sequence[PreprocessResult], key: str, about: Mapping[str, str], weights: Digests
) -> Entry:
    """Make an entry of the results of one call.

    Args:
        results: The results.
        key: The key of the call.
        about: What people are told of the entry.
        weights: The weights that the key was made of.

    Raises:
        Unstorable: A result has something that an entry can't keep.
    """
    blobs: list[bytes] = []
    content = [_packed(result, blobs, weights) for result in results]
    return Entry(key, about, content, blobs)


def unpacked(
    entry: Entry, count: int, who: str, weights: Digests, copies: Copies | None = None
) -> list[PreprocessResult]:
    """The results that an entry was made of.

    Args:
        entry: The entry.
        count: How many results the call has.
        who: Where it comes from, for messages.
        weights: The weights that the key was made of.
        copies: Has the weights in their buffers when it is settled; None to have them at once.

    Raises:
        CacheError: It does not hold that many results, or something else.
    """
    later = copies or Copies()
    try:
        results = [_unpacked(item, entry.blobs, weights, later) for item in entry.content]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        cure = "etdev cache verify removes it"
        raise CacheError(who, "has results that make no sense", cure) from error
    if len(results) != count:
        cure = "etdev cache clear"
        raise CacheError(who, f"has {len(results)} results, not {count}", cure)
    if copies is None:
        later.settle()
    return results


def _packed(result: PreprocessResult, blobs: list[bytes], weights: Digests) -> dict[str, Any]:
    if delegate_info(result) is not None:
        raise Unstorable("the backend adds delegate info to the graph")
    return {
        "payload": _blob(result.processed_bytes, blobs),
        "handles": _plain(result.debug_handle_map),
        "data": _packed_data(result.data_store_output, blobs, weights),
    }


def _unpacked(
    item: Mapping[str, Any], blobs: Sequence[bytes | memoryview], weights: Digests, copies: Copies
) -> PreprocessResult:
    return PreprocessResult(
        processed_bytes=bytes(blobs[_natural(item["payload"])]),
        debug_handle_map=_restored(item["handles"]),
        data_store_output=_unpacked_data(item["data"], blobs, weights, copies),
    )


def _packed_data(data: NamedDataStoreOutput | None, blobs: list[bytes], weights: Digests) -> Any:
    if data is None:
        return None
    return {
        "buffers": [_packed_buffer(buffer, blobs, weights) for buffer in data.buffers],
        "inside": _packed_entries(data.pte_data),
        "outside": [[name, _packed_entries(keys)] for name, keys in data.external_data.items()],
    }


def _unpacked_data(
    item: Mapping[str, Any] | None,
    blobs: Sequence[bytes | memoryview],
    weights: Digests,
    copies: Copies,
) -> NamedDataStoreOutput | None:
    if item is None:
        return None
    buffers: list[bytes] = []
    for number, kept in enumerate(item["buffers"]):
        buffers.append(b"" if isinstance(kept, str) else bytes(blobs[_natural(kept)]))
        if isinstance(kept, str):
            copies.fill(buffers, number, kept, weights)
    return NamedDataStoreOutput(
        buffers=buffers,
        pte_data=_unpacked_entries(item["inside"], len(buffers)),
        external_data={
            _text(name): _unpacked_entries(keys, len(buffers)) for name, keys in item["outside"]
        },
    )


def _packed_buffer(buffer: Any, blobs: list[bytes], weights: Digests) -> int | str:
    """The number of a blob, or the digest of a weight."""
    content = _content(buffer)
    digest = weights.find(content)
    return _blob(content, blobs) if digest is None else digest


def _packed_entries(entries: Mapping[str, DataEntry]) -> list[Any]:
    return [
        [key, entry.buffer_index, entry.alignment, _packed_layout(entry.tensor_layout)]
        for key, entry in entries.items()
    ]


def _unpacked_entries(items: Sequence[Any], buffers: int) -> dict[str, DataEntry]:
    entries = {}
    for key, number, alignment, layout in items:
        if _natural(number) >= buffers or _natural(alignment) == 0:
            raise ValueError(key)
        entries[_text(key)] = DataEntry(number, alignment, _unpacked_layout(layout))
    return entries


def _packed_layout(layout: TensorLayout | None) -> Any:
    if layout is None:
        return None
    return [int(layout.scalar_type), list(layout.sizes), list(layout.dim_order)]


def _unpacked_layout(item: Sequence[Any] | None) -> TensorLayout | None:
    if item is None:
        return None
    scalar_type, sizes, order = item
    return TensorLayout(
        ScalarType(scalar_type), [_natural(n) for n in sizes], [_natural(n) for n in order]
    )


def _blob(data: Any, blobs: list[bytes]) -> int:
    """Add bytes; their number."""
    blobs.append(_content(data))
    return len(blobs) - 1


def _content(data: Any) -> bytes:
    """Bytes, of the same kind as torch's or ExecuTorch's buffers."""
    if type(data) is bytes:
        return data
    try:
        # A file-backed buffer can be read as a prefix only.
        return data.prefix(len(data)) if hasattr(data, "prefix") else bytes(memoryview(data))
    except TypeError:
        raise Unstorable(f"the backend returns a buffer of {type(data).__name__}") from None


def _plain(value: Any) -> Any:
    """Numbers, text, tuples, lists and dicts as JSON, from which their types can be restored."""
    if value is None or type(value) in (bool, int, str, float):
        return value
    if type(value) in (tuple, list):
        return [type(value).__name__, [_plain(item) for item in value]]
    if type(value) is dict:
        return ["dict", [[_plain(key), _plain(item)] for key, item in value.items()]]
    raise Unstorable(f"the backend returns debug handles of {type(value).__name__}")


def _restored(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, items = value
    if kind == "dict":
        return {_restored(key): _restored(item) for key, item in items}
    return {"tuple": tuple, "list": list}[kind](_restored(item) for item in items)


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value
