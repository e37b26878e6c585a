"""Templates: a compiled delegate of one structure, to be filled with another partition's weights.

XNNPACK stores weights in ExecuTorch's named data under the digests of their bytes, and its payload
has those keys, all of one length, and the debug handles of the nodes. Nothing else in it depends on
which partition of a structure it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from attrs import frozen
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.errors import EtdevError
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
        payload, store = self._payload(structure), NamedDataStore()
        if payload is None:
            return None
        for index in self._stored:
            data = bytes(contents(structure.weights[index]))
            store.add_named_data(structure.digests[index], data, self.alignment)
        return PreprocessResult(payload, {}, store.get_named_data_store_output())

    @property
    def _stored(self) -> list[int]:
        """The weights that are stored, in order."""
        return [min(place.candidates) for place in self.weights]

    def _payload(self, structure: Structure) -> bytes | None:
        payload = bytearray(self.payload)
        for place in self.weights:
            names = {structure.digests[index].encode() for index in place.candidates}
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
        keys, data = structure.digests, result.data_store_output
        if self._payload(structure) != result.processed_bytes:
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

    def to_bytes(self) -> bytes:
        """The template as text, which `from_bytes` reads."""
        content = {
            "payload": self.payload.hex(),
            "weights": [[place.offset, sorted(place.candidates)] for place in self.weights],
            "handles": [[place.offset, sorted(place.candidates)] for place in self.handles],
            "alignment": self.alignment,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, data: bytes, structure: Structure) -> Template | None:
        """Read what `to_bytes` made; None of anything that is not a template of this structure."""
        try:
            content = json.loads(data)
            payload = bytes.fromhex(content["payload"])
            weights = _read(content["weights"], keys_of(payload), len(structure.weights))
            handles = _read(content["handles"], handles_of(payload), len(structure.handles))
            alignment = content["alignment"]
            if type(alignment) is not int or alignment < 1:
                return None
        except (ValueError, TypeError, KeyError, IndexError, struct.error, EtdevError):
            return None
        return cls(payload, weights, handles, alignment)


def template_of(structure: Structure, result: PreprocessResult) -> Template | None:
    """The template that a compiled partition is; None if it stores anything but its weights."""
    data = result.data_store_output
    alignments = {entry.alignment for entry in getattr(data, "pte_data", {}).values()}
    if result.debug_handle_map or getattr(result, "_delegate_info_meta", None) is not None:
        return None
    if len(alignments) > 1 or getattr(data, "external_data", None):
        return None
    weights = _places(keys_of(result.processed_bytes), structure.digests)
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


def _read(
    places: Sequence[tuple[int, Sequence[int]]], found: Sequence[tuple[int, object]], count: int
) -> list[_Place]:
    """Places as `to_bytes` wrote them, if they are those where a payload names something."""
    read = [_Place(offset, frozenset(candidates)) for offset, candidates in places]
    if [place.offset for place in read] != [offset for offset, _ in found]:
        raise ValueError(places)
    for place in read:
        if not place.candidates or not place.candidates <= set(range(count)):
            raise ValueError(places)
    return read
