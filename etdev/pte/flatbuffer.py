"""Bounds of flatbuffers: a file that would unpack to far more than its size is rejected.

A flatbuffer may refer to one table from many places, so that a small file unpacks to a huge tree,
and its lengths and offsets may be anything. ExecuTorch trusts them, so a file is measured before
ExecuTorch unpacks it. The schemas are read from ExecuTorch's own .fbs files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from attrs import define, field, frozen
from flatbuffers import encode, packer
from flatbuffers.table import Table

PROGRAM = ("executorch.exir._serialize", "program.fbs", "Program")
DATA = ("executorch.extension.flat_tensor.serialize", "flat_tensor.fbs", "FlatTensor")

# Bytes that a file may unpack to for each of its own, since writers store equal strings once.
_SHARED = 8
_SMALL = 1 << 16
# A table takes at least 4 bytes of the file, if no two share any.
_TABLE = 4 * _SHARED
_UNIONS = re.compile(r"^union (\w+) \{([^}]*)\}", re.MULTILINE)
_TABLES = re.compile(r"^table (\w+) \{([^}]*)\}", re.MULTILINE)
_FIELD = re.compile(r"(\w+):\s*(\[?)([\w.]+)\]?[^;]*;")


@frozen
class _Field:
    """A field of a table: its slot in the vtable, its type, and whether it is a vector of that."""

    slot: int
    vector: bool
    kind: str


@frozen(eq=False)
class Schema:
    """A schema: the fields of each table by name, the tables of each union, and its identifier."""

    tables: Mapping[str, Mapping[str, _Field]]
    unions: Mapping[str, tuple[str, ...]]
    root: str
    identifier: bytes


@cache
def schema(package: str, file: str, root: str) -> Schema:
    """Read the schema of a file format from ExecuTorch's wheel."""
    text = re.sub(r"//.*", "", files(package).joinpath(file).read_text("utf-8"))
    unions = {name: tuple(re.findall(r"\w+", body)) for name, body in _UNIONS.findall(text)}
    tables = {}
    for name, body in _TABLES.findall(text):
        slot, fields = 0, {}
        for title, bracket, kind in _FIELD.findall(body):
            # A union has a slot for its type, and then one for the table.
            slot += kind in unions
            fields[title] = _Field(4 + 2 * slot, bool(bracket), kind)
            slot += 1
        tables[name] = fields
    identifier = text.partition('file_identifier "')[2][:4]
    return Schema(tables, unions, root, identifier.encode())


def measure(data: memoryview | bytes, shape: Schema) -> None:
    """Reject a flatbuffer that unpacks to more than a file of its size can hold.

    Raises:
        ValueError: It does, or an offset points outside of it.
    """
    try:
        _Measure(data, shape).table(shape.root, _root(data))
    # flatbuffers raises TypeError for a negative place.
    except (struct.error, TypeError) as error:
        raise ValueError("an offset points outside of the file") from error


def texts(data: memoryview | bytes, shape: Schema, vector: str, name: str) -> list[str]:
    """Return the texts of a field of all tables in a vector of the root, measured before."""
    measure(data, shape)
    tables = shape.tables[shape.root][vector]
    slot = shape.tables[tables.kind][name].slot
    root = Table(data, _root(data))
    if not (offset := root.Offset(tables.slot)):
        return []
    start, count = root.Vector(offset), root.VectorLen(offset)
    found = []
    for place in range(start, start + 4 * count, 4):
        table = Table(data, root.Indirect(place))
        offset = table.Offset(slot)
        found.append(table.String(offset + table.Pos).decode("utf-8") if offset else "")
    return found


def _root(data: memoryview | bytes) -> int:
    return int(encode.Get(packer.uoffset, data, 0))


@define(eq=False)
class _Measure:
    """A walk of a flatbuffer as ExecuTorch unpacks it, which ends when it gets too long."""

    data: memoryview | bytes
    shape: Schema
    _size: int = field(default=0, init=False)

    def table(self, name: str, place: int) -> None:
        """Count a table and everything that it refers to."""
        self._count(_TABLE)
        table = Table(self.data, place)
        for one in self.shape.tables[name].values():
            if not (offset := table.Offset(one.slot)):
                continue
            kind = one.kind
            if kind in self.shape.unions:
                kind = self._member(table, one)
            if kind in self.shape.tables and one.vector:
                start, count = table.Vector(offset), table.VectorLen(offset)
                for item in range(start, start + 4 * count, 4):
                    self.table(kind, table.Indirect(item))
            elif kind in self.shape.tables:
                self.table(kind, table.Indirect(place + offset))
            elif one.vector or kind == "string":
                self._count(table.VectorLen(offset))

    def _member(self, table: Table, one: _Field) -> str:
        """Return the table that a union has; empty for one that ExecuTorch doesn't know."""
        offset = table.Offset(one.slot - 2)
        number = encode.Get(packer.uint8, self.data, table.Pos + offset) if offset else 0
        kinds = self.shape.unions[one.kind]
        return kinds[number - 1] if 0 < number <= len(kinds) else ""

    def _count(self, size: int) -> None:
        self._size += size
        limit = _SHARED * len(self.data) + _SMALL
        if self._size > limit:
            raise ValueError(f"{len(self.data)} bytes would unpack to more than {limit}")
