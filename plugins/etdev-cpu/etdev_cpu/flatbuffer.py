"""Positions of the keys of weights and of the debug handles of nodes in an XNNPACK payload.

Fields are those of XNNPACK's schema.fbs, which ExecuTorch only ever appends to.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatbuffers import encode, number_types
from flatbuffers.table import Table

from etdev_cpu.payload import flatbuffer_of

# Fields by position: of the graph, of a node, of a constant.
_NODES, _CONSTANTS = 1, 8
_HANDLE = 2
_KEY = 2
# XNNPACK's handle of a node without one.
_UNKNOWN = 65535


def keys_of(payload: bytes) -> list[tuple[int, str]]:
    """Return the keys of the weights that a payload reads, and the position of each."""
    keys = []
    for constant in _tables(payload, _CONSTANTS):
        if offset := _field(constant, _KEY):
            start, size = constant.Vector(offset), constant.VectorLen(offset)
            if size:
                keys.append((start, payload[start : start + size].decode()))
    return keys


def handles_of(payload: bytes) -> list[tuple[int, int | None]]:
    """Return the debug handles of a payload's nodes, if any, and the position of each."""
    handles: list[tuple[int, int | None]] = []
    for node in _tables(payload, _NODES):
        offset = _field(node, _HANDLE)
        handle = node.Get(number_types.Uint32Flags, node.Pos + offset) if offset else _UNKNOWN
        at = node.Pos + offset if offset else 0
        handles.append((at, None if handle == _UNKNOWN else handle))
    return handles


def _tables(payload: bytes, position: int) -> Iterator[Table]:
    """Yield the tables of a vector of the graph."""
    start, _ = flatbuffer_of(payload)
    root = Table(
        payload, start + encode.Get(number_types.UOffsetTFlags.packer_type, payload, start)
    )
    if offset := _field(root, position):
        first = root.Vector(offset)
        for index in range(root.VectorLen(offset)):
            yield Table(payload, root.Indirect(first + 4 * index))


def _field(table: Table, position: int) -> int:
    """Return the offset of a field in its table; 0 if it has its default."""
    return int(table.Offset(4 + 2 * position))
