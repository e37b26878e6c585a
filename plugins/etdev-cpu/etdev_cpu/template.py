"""Templates: a compiled delegate of one structure, to be filled with another partition's weights.

XNNPACK stores weights in ExecuTorch's named data under the digests of their bytes, and its payload
has those keys, all of one length, and the debug handles of the nodes. Nothing else in it depends on
which partition of a structure it is.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from attrs import frozen
from executorch.exir._serialize._named_data_store import NamedDataStore, NamedDataStoreOutput
from executorch.exir.backend.backend_details import PreprocessResult

from etdev_cpu.flatbuffer import handles_of, keys_of
from etdev_cpu.structure import Structure, contents

_HANDLE = struct.Struct("<I")


@frozen
class _Place:
    """Where a payload names a weight or a node, and which it may be, by position.

    There are several if the delegate the template comes from has equal weights.
    """

    offset: int
    candidates: frozenset[int]


@frozen
class Template:
    """A payload and the places in it that differ between partitions.

    Args:
        payload: The payload.
        weights: Where it has the keys of weights.
        handles: Where it has debug handles of nodes.
        alignment: Of the weights in the named data.
    """

    payload: bytes
    weights: Sequence[_Place]
    handles: Sequence[_Place]
    alignment: int

    def fill(self, structure: Structure) -> PreprocessResult | None:
        """What XNNPACK would give for a partition of this structure; None if that isn't certain."""
        stored = [contents(weight) for weight in structure.weights]
        keys = [hashlib.sha256(data).hexdigest() for data in stored]
        return self._filled(structure, stored, keys)

    def _filled(
        self, structure: Structure, stored: Sequence[bytes], keys: Sequence[str]
    ) -> PreprocessResult | None:
        payload, store = bytearray(self.payload), NamedDataStore()
        for place in self.weights:
            if len({keys[index] for index in place.candidates}) != 1:
                return None
            index = min(place.candidates)
            key = keys[index].encode()
            payload[place.offset : place.offset + len(key)] = key
            store.add_named_data(keys[index], stored[index], self.alignment)
        for place in self.handles:
            handles = {structure.handles[index] for index in place.candidates}
            handle = handles.pop()
            # A zero would be left out of the payload.
            if handles or not handle:
                return None
            _HANDLE.pack_into(payload, place.offset, handle)
        return PreprocessResult(bytes(payload), {}, store.get_named_data_store_output())


def template_of(structure: Structure, result: PreprocessResult) -> Template | None:
    """The template that a compiled partition is; None if it stores anything but its weights."""
    data = result.data_store_output
    entries = getattr(data, "pte_data", {})
    alignments = {entry.alignment for entry in entries.values()}
    if result.debug_handle_map or getattr(result, "_delegate_info_meta", None) is not None:
        return None
    if len(alignments) > 1 or getattr(data, "external_data", None):
        return None
    stored = [contents(weight) for weight in structure.weights]
    keys = [hashlib.sha256(content).hexdigest() for content in stored]
    weights = _places(keys_of(result.processed_bytes), keys)
    handles = _places(handles_of(result.processed_bytes), structure.handles)
    if weights is None or handles is None:
        return None
    template = Template(result.processed_bytes, weights, handles, max(alignments, default=1))
    return template if _same(template._filled(structure, stored, keys), result) else None


def _places(found: Sequence[tuple[int, object]], given: Sequence[object]) -> list[_Place] | None:
    """Which of the given values each value in a payload may be; None if one is none of them."""
    indices: dict[object, set[int]] = {}
    for index, value in enumerate(given):
        indices.setdefault(value, set()).add(index)
    if any(value not in indices for _, value in found):
        return None
    return [_Place(offset, frozenset(indices[value])) for offset, value in found]


def _same(one: PreprocessResult | None, other: PreprocessResult) -> bool:
    return (
        one is not None
        and one.processed_bytes == other.processed_bytes
        and _stored(one.data_store_output) == _stored(other.data_store_output)
    )


def _stored(data: NamedDataStoreOutput | None) -> object:
    return data and (data.buffers, list(data.pte_data.items()))
