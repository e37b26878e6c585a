"""Compiled delegates of one structure, to be filled with another partition's weights.

XNNPACK stores weights in ExecuTorch's named data under the digests of their bytes, and its payload
has those keys and the debug handles of the nodes. Nothing else in it depends on which partition of
a structure it is.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence

from attrs import field, frozen, validators
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import PreprocessResult
from flatbuffers import encode, number_types
from flatbuffers.table import Table

from etdev_cpu.payload import flatbuffer_of
from etdev_cpu.structure import ABSENT, Structure, contents

_HANDLE = struct.Struct("<I")
# Fields by position, which ExecuTorch only ever appends to: the nodes of XNNPACK's graph, and the
# debug handle of a node.
_NODES, _DEBUG_HANDLE = 1, 2


@frozen
class Template:
    """A payload, and the weights and nodes of the partition that it was compiled from.

    Args:
        payload: The payload.
        digests: The key of each weight of that partition.
        handles: The debug handle of each of its nodes.
        stored: Positions of the weights in the named data.
        alignment: Alignment of the weights in the named data.
    """

    payload: bytes
    digests: Sequence[str]
    handles: Sequence[int | None]
    stored: Sequence[int]
    alignment: int = field(validator=[validators.instance_of(int), validators.ge(1)])

    def fill(self, structure: Structure) -> PreprocessResult:
        """Return XNNPACK's result for a partition of this structure.

        Raises:
            KeyError: The payload names another node than the template.
        """
        old = [digest.encode() for digest in self.digests]
        keys = dict(zip(old, map(str.encode, structure.digests), strict=True))
        # In one pass, since a weight may be another one's in the partition that was compiled.
        pattern = re.compile(b"|".join(map(re.escape, old)) or b"(?!)")
        payload = bytearray(pattern.sub(lambda key: keys[key[0]], self.payload))
        handles = dict(zip(self.handles, structure.handles, strict=True)) | {ABSENT: ABSENT}
        for offset in _handles(self.payload):
            (handle,) = _HANDLE.unpack_from(payload, offset)
            _HANDLE.pack_into(payload, offset, handles[handle])
        store = NamedDataStore()
        for index in self.stored:
            data = bytes(contents(structure.weights[index]))
            store.add_named_data(structure.digests[index], data, self.alignment)
        return PreprocessResult(bytes(payload), {}, store.get_named_data_store_output())

    def to_bytes(self) -> bytes:
        """Return the template as text, which `from_bytes` reads."""
        content = [self.payload.hex(), self.digests, self.handles, self.stored, self.alignment]
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, data: bytes, structure: Structure) -> Template | None:
        """Read the text of `to_bytes`; None if it can't be filled with this structure."""
        try:
            payload, *others = json.loads(data)
            template = cls(bytes.fromhex(payload), *others)
            template.fill(structure)
        except Exception:  # Anyone may have written it.
            return None
        return template


def template_of(structure: Structure, result: PreprocessResult) -> Template | None:
    """Return a compiled partition as a template; None if filling it gives something else."""
    entries = result.data_store_output.pte_data
    alignment = max((entry.alignment for entry in entries.values()), default=1)
    digests, handles = structure.digests, structure.handles
    try:
        stored = [digests.index(key) for key in entries]
        template = Template(result.processed_bytes, digests, handles, stored, alignment)
        return template if template.fill(structure) == result else None
    except (LookupError, ValueError):
        return None


def _handles(payload: bytes) -> Iterator[int]:
    """Yield the position of the debug handle of each node in a payload."""
    start, _ = flatbuffer_of(payload)
    root = start + encode.Get(number_types.UOffsetTFlags.packer_type, payload, start)
    graph = Table(payload, root)
    if offset := _field(graph, _NODES):
        first = graph.Vector(offset)
        for index in range(graph.VectorLen(offset)):
            node = Table(payload, graph.Indirect(first + 4 * index))
            if at := _field(node, _DEBUG_HANDLE):
                yield node.Pos + at


def _field(table: Table, position: int) -> int:
    """Return the offset of a field in its table; 0 if it has its default."""
    return int(table.Offset(4 + 2 * position))
