"""Flatbuffer: where an XNNPACK payload has the keys of its weights and the handles of its nodes.

Offsets are those of XNNPACK's schema.fbs, which ExecuTorch only ever appends to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attrs import frozen

from etdev_cpu.payload import flatbuffer_of

# Fields by position: of the graph, of a node, of a constant.
_NODES, _CONSTANTS = 1, 8
_HANDLE = 2
# XNNPACK's handle of a node without one.
_UNKNOWN = 65535
_KEY = 2


@frozen
class _Table:
    """A table of a flatbuffer.

    Args:
        data: The payload.
        start: Where the table begins in it.
    """

    data: bytes
    start: int

    def field(self, position: int) -> int | None:
        """Where a field begins; None if it has its default."""
        fields = self.start - _number("<i", self.data, self.start)
        slot = 4 + 2 * position
        if slot >= _number("<H", self.data, fields):
            return None
        offset = _number("<H", self.data, fields + slot)
        return self.start + offset if offset else None

    def tables(self, position: int) -> Iterator[_Table]:
        """The tables of a vector."""
        field = self.field(position)
        if field is not None:
            start = _target(self.data, field)
            for index in range(_number("<I", self.data, start)):
                yield _Table(self.data, _target(self.data, start + 4 + 4 * index))


def keys_of(payload: bytes) -> list[tuple[int, str]]:
    """The keys of the weights that a payload reads, and where each is."""
    keys = []
    for constant in _root(payload).tables(_CONSTANTS):
        if (field := constant.field(_KEY)) is not None:
            start = _target(payload, field)
            size = _number("<I", payload, start)
            if size:
                keys.append((start + 4, payload[start + 4 : start + 4 + size].decode()))
    return keys


def handles_of(payload: bytes) -> list[tuple[int, int | None]]:
    """The debug handles of a payload's nodes, and where each is; None where there is none."""
    fields = [node.field(_HANDLE) or 0 for node in _root(payload).tables(_NODES)]
    handles = [_number("<I", payload, at) if at else _UNKNOWN for at in fields]
    return [
        (at, None if handle == _UNKNOWN else handle)
        for at, handle in zip(fields, handles, strict=True)
    ]


def _root(payload: bytes) -> _Table:
    start, _ = flatbuffer_of(payload)
    return _Table(payload, _target(payload, start))


def _target(data: bytes, at: int) -> int:
    return at + _number("<I", data, at)


def _number(form: str, data: bytes, at: int) -> int:
    (number,) = struct.unpack_from(form, data, at)
    return int(number)
