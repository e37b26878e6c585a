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
from executorch.exir._serialize._named_data_store import NamedDataStore
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
        keys, store = _keys(structure), NamedDataStore()
        payload = self._payload(structure, keys)
        if payload is None:
            return None
        for index in self._stored:
            data = bytes(contents(structure.weights[index]))
            store.add_named_data(keys[index], data, self.alignment)
        return PreprocessResult(payload, {}, store.get_named_data_store_output())

    @property
    def _stored(self) -> list[int]:
        """The weights that are stored, in order."""
        return [min(place.candidates) for place in self.weights]

    def _payload(self, structure: Structure, keys: Sequence[str]) -> bytes | None:
        payload = bytearray(self.payload)
        for place in self.weights:
            names = {keys[index].encode() for index in place.candidates}
            key = names.pop()
            if names:
                return None
            payload[place.offset : place.offset + len(key)] = key
        for place in self.handles:
            handles = {structure.handles[index] for index in place.candidates}
            handle = handles.pop()
            # A zero would be left out of the payload.
            if handles or not handle:
                return None
            _HANDLE.pack_into(payload, place.offset, handle)
        return bytes(payload)

    def gives(self, structure: Structure, result: PreprocessResult) -> bool:
        """Whether filling it with the partition it comes from gives what it comes from."""
        keys, data = _keys(structure), result.data_store_output
        if self._payload(structure, keys) != result.processed_bytes:
            return False
        entries = data.pte_data if data else {}
        if list(entries) != list(dict.fromkeys(keys[index] for index in self._stored)):
            return False
        return all(
            entry.tensor_layout is None
            and entry.buffer_index == position
            and contents(structure.weights[keys.index(key)]) == data.buffers[position]
            for position, (key, entry) in enumerate(entries.items())
        )


def _keys(structure: Structure) -> list[str]:
    return [hashlib.sha256(contents(weight)).hexdigest() for weight in structure.weights]


def template_of(structure: Structure, result: PreprocessResult) -> Template | None:
    """The template that a compiled partition is; None if it stores anything but its weights."""
    data = result.data_store_output
    alignments = {entry.alignment for entry in getattr(data, "pte_data", {}).values()}
    if result.debug_handle_map or getattr(result, "_delegate_info_meta", None) is not None:
        return None
    if len(alignments) > 1 or getattr(data, "external_data", None):
        return None
    weights = _places(keys_of(result.processed_bytes), _keys(structure))
    handles = _places(handles_of(result.processed_bytes), structure.handles)
    if weights is None or handles is None:
        return None
    template = Template(result.processed_bytes, weights, handles, max(alignments, default=1))
    return template if template.gives(structure, result) else None


def _places(found: Sequence[tuple[int, object]], given: Sequence[object]) -> list[_Place] | None:
    """Which of the given values each value in a payload may be; None if one is none of them."""
    indices: dict[object, set[int]] = {}
    for index, value in enumerate(given):
        indices.setdefault(value, set()).add(index)
    if any(value is None or value not in indices for _, value in found):
        return None
    return [_Place(offset, frozenset(indices[value])) for offset, value in found]
