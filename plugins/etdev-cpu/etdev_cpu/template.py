"""Compiled delegates of one structure, to be filled with another partition's weights.

XNNPACK stores weights in ExecuTorch's named data under the digests of their bytes, and its payload
has those keys, all of one length, and the debug handles of the nodes. Nothing else in it depends on
which partition of a structure it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.errors import EtdevError
from etdev_cpu.flatbuffer import handles_of, keys_of
from etdev_cpu.structure import Structure, contents

_HANDLE = struct.Struct("<I")


def _frozen(values: Sequence[Any]) -> Sequence[Any]:
    return tuple(values)


@frozen
class _Place:
    """A position in a payload that names a weight or a node, and which it may be.

    There are several candidates if the compiled partition has equal weights.
    """

    offset: int
    candidates: frozenset[int]


@frozen
class Template:
    """A payload, and the weights and nodes of the partition that it was compiled from.

    Args:
        payload: The payload.
        digests: The key of each weight of that partition.
        handles: The debug handle of each of its nodes.
        alignment: Alignment of the weights in the named data.

    Raises:
        ValueError: The payload names a weight or a node that is not among these.
    """

    payload: bytes
    digests: Sequence[str] = field(converter=_frozen)
    handles: Sequence[int | None] = field(converter=_frozen)
    alignment: int
    _weights: list[_Place] = field(init=False, repr=False)
    _nodes: list[_Place] = field(init=False, repr=False)

    @_weights.default
    def _find_weights(self) -> list[_Place]:
        return _places(keys_of(self.payload), self.digests)

    @_nodes.default
    def _find_nodes(self) -> list[_Place]:
        return _places(handles_of(self.payload), self.handles)

    def fill(self, structure: Structure) -> PreprocessResult | None:
        """Return XNNPACK's result for a partition of this structure; None if that isn't certain."""
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
        return [min(place.candidates) for place in self._weights]

    def _payload(self, structure: Structure) -> bytes | None:
        payload = bytearray(self.payload)
        for place in self._weights:
            names = {structure.digests[index].encode() for index in place.candidates}
            key = names.pop()
            if names:
                return None
            payload[place.offset : place.offset + len(key)] = key
        for place in self._nodes:
            handles = {structure.handles[index] for index in place.candidates}
            handle = handles.pop()
            # A zero would be left out of the payload.
            if handles or not handle:
                return None
            _HANDLE.pack_into(payload, place.offset, handle)
        return bytes(payload)

    def gives(self, structure: Structure, result: PreprocessResult) -> bool:
        """Return True if filling it with the partition it comes from gives what it comes from."""
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
        """Return the template as text, which `from_bytes` reads."""
        content = [self.payload.hex(), self.digests, self.handles, self.alignment]
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, data: bytes, structure: Structure) -> Template | None:
        """Read the text of `to_bytes`; None if it is not a template of this structure."""
        try:
            payload, digests, handles, alignment = json.loads(data)
            template = cls(bytes.fromhex(payload), digests, handles, alignment)
        except (ValueError, TypeError, struct.error, EtdevError):
            return None
        sizes = len(template.digests), len(template.handles)
        fits = sizes == (len(structure.digests), len(structure.handles))
        return template if fits and type(alignment) is int and alignment > 0 else None


def template_of(structure: Structure, result: PreprocessResult) -> Template | None:
    """Return a compiled partition as a template; None if it stores anything but its weights."""
    data = result.data_store_output
    alignments = {entry.alignment for entry in getattr(data, "pte_data", {}).values()}
    if result.debug_handle_map or getattr(result, "_delegate_info_meta", None) is not None:
        return None
    if len(alignments) > 1 or getattr(data, "external_data", None):
        return None
    alignment = max(alignments, default=1)
    try:
        template = Template(result.processed_bytes, structure.digests, structure.handles, alignment)
    except ValueError:
        return None
    return template if template.gives(structure, result) else None


def _places(found: Sequence[tuple[int, object]], given: Sequence[object]) -> list[_Place]:
    """Return which of the given values each value in a payload may be."""
    indices: dict[object, set[int]] = {}
    for index, value in enumerate(given):
        indices.setdefault(value, set()).add(index)
    if any(value is None or value not in indices for _, value in found):
        raise ValueError("a value that was not given")
    return [_Place(offset, frozenset(indices[value])) for offset, value in found]
