"""Flatbuffers: how much a file would unpack to, and the keys of a .ptd, read within bounds.

A flatbuffer may refer to one table from many places, so that a small file unpacks to a huge tree,
and its lengths and offsets may be anything. ExecuTorch trusts them, so they are measured first. The
schema is read from ExecuTorch's own .fbs files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from attrs import define, field, frozen

PROGRAM = ("executorch.exir._serialize", "program.fbs", "Program")
DATA = ("executorch.extension.flat_tensor.serialize", "flat_tensor.fbs", "FlatTensor")

# Bytes that a table or an item of a vector takes at least, if no two share any.
_LEAST_BYTES = 4
# Writers store equal strings once, so that a tree is somewhat larger than its file.
_SHARED = 8
_SMALL = 1 << 16
_UNIONS = re.compile(r"^union (\w+) \{([^}]*)\}", re.MULTILINE)
_TABLES = re.compile(r"^table (\w+) \{([^}]*)\}", re.MULTILINE)
_FIELD = re.compile(r"(\w+):\s*(\[?)([\w.]+)\]?[^;]*;")
_OFFSET = struct.Struct("<I")
_SIGNED = struct.Struct("<i")
_SLOT = struct.Struct("<H")
_SIZES = {
    **dict.fromkeys(("long", "ulong", "int64", "uint64", "double", "float64"), 8),
    **dict.fromkeys(("int", "uint", "int32", "uint32", "float", "float32"), 4),
    **dict.fromkeys(("short", "ushort", "int16", "uint16"), 2),
}


@frozen
class _Field:
    """A field of a table: its slot, whether it is a vector, and of what."""

    slot: int
    vector: bool
    kind: str


@frozen(eq=False)
class Schema:
    """A schema: the fields of each table by name, and the tables of each union."""

    tables: Mapping[str, Mapping[str, _Field]]
    unions: Mapping[str, tuple[str, ...]]
    root: str


@cache
def schema(package: str, file: str, root: str) -> Schema:
    """Read the schema of a file format that ExecuTorch has in its wheel."""
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
    return Schema(tables, unions, root)


def measure(data: memoryview | bytes, shape: Schema) -> None:
    """Refuse a flatbuffer that unpacks to more than a file of its size can hold.

    Args:
        data: Its bytes.
        shape: Its schema.

    Raises:
        ValueError: It does, or an offset points outside of it.
    """
    _Measure(data, shape).check()


def texts(data: memoryview | bytes, shape: Schema, vector: str, name: str) -> list[str]:
    """The texts of a field of all tables in a vector of the root.

    Raises:
        ValueError: As for `measure`, or one is not text.
    """
    walk = _Measure(data, shape)
    walk.check()
    tables = shape.tables[shape.root][vector]
    start = walk.field(walk.root, tables.slot)
    if start is None:
        return []
    kind = shape.tables[tables.kind][name]
    found = []
    for table in walk.items(walk.follow(start)):
        place = walk.field(table, kind.slot)
        found.append("" if place is None else walk.text(walk.follow(place)))
    return found


@define(eq=False)
class _Measure:
    """The walk of one flatbuffer; a table that is met again is not walked again."""

    data: memoryview | bytes
    shape: Schema
    _steps: int = field(default=0, init=False)
    _known: dict[tuple[str, bool, int], int] = field(factory=dict, init=False)

    @property
    def root(self) -> int:
        return self.follow(0)

    def check(self) -> None:
        """Walk it all.

        Raises:
            ValueError: It is too large.
        """
        try:
            size = self._table(self.shape.root, self.root)
        except struct.error as error:
            raise ValueError("an offset points outside of the file") from error
        if size > _SHARED * len(self.data) + _SMALL:
            raise ValueError(f"{len(self.data)} bytes would unpack to {size}")

    def follow(self, place: int) -> int:
        """Where an offset at a place points to."""
        return place + int(self._read(_OFFSET, place))

    def field(self, table: int, slot: int) -> int | None:
        """The place of a field of a table, if it has it."""
        entries = table - int(self._read(_SIGNED, table))
        if slot >= int(self._read(_SLOT, entries)):
            return None
        start = int(self._read(_SLOT, entries + slot))
        return table + start if start else None

    def items(self, vector: int) -> list[int]:
        """Where the tables of a vector are."""
        count = self._count(vector, _LEAST_BYTES)
        self._step(count)
        return [self.follow(vector + 4 + 4 * index) for index in range(count)]

    def text(self, place: int) -> str:
        """The text at a place."""
        count = self._count(place, 1)
        return bytes(self.data[place + 4 : place + 4 + count]).decode("utf-8")

    def _read(self, kind: struct.Struct, place: int) -> Any:
        # struct counts a negative place from the end.
        if place < 0:
            raise struct.error
        return kind.unpack_from(self.data, place)[0]

    def _count(self, vector: int, size: int) -> int:
        count = int(self._read(_OFFSET, vector))
        if vector + 4 + count * size > len(self.data):
            raise struct.error
        return count

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > len(self.data) // _LEAST_BYTES + _SMALL:
            raise ValueError("its tables overlap")

    def _table(self, name: str, table: int) -> int:
        return self._once((name, False, table), lambda: self._fields(name, table))

    def _once(self, key: tuple[str, bool, int], size: Callable[[], int]) -> int:
        if key not in self._known:
            self._step(1)
            self._known[key] = size()
        return self._known[key]

    def _fields(self, name: str, table: int) -> int:
        size = 1
        for one in self.shape.tables[name].values():
            place = self.field(table, one.slot)
            if place is not None:
                size += self._field_size(one, table, place)
        return size

    def _field_size(self, one: _Field, table: int, place: int) -> int:
        if one.kind in self.shape.unions:
            return self._union(one, table, place)
        if one.vector:
            return self._vector(one.kind, self.follow(place))
        if one.kind == "string":
            return 1 + self._count(self.follow(place), 1)
        if one.kind in self.shape.tables:
            return self._table(one.kind, self.follow(place))
        return 1

    def _union(self, one: _Field, table: int, place: int) -> int:
        tag = self.field(table, one.slot - 2)
        number = int(self.data[tag]) if tag is not None and tag < len(self.data) else 0
        kinds = self.shape.unions[one.kind]
        # ExecuTorch reads no table of a kind that it doesn't know.
        return self._table(kinds[number - 1], self.follow(place)) if 0 < number <= len(kinds) else 1

    def _vector(self, kind: str, vector: int) -> int:
        if kind in self.shape.tables:
            return self._once((kind, True, vector), lambda: self._tables(kind, vector))
        return 1 + self._count(vector, _SIZES.get(kind, 1))

    def _tables(self, kind: str, vector: int) -> int:
        return 1 + sum(self._table(kind, table) for table in self.items(vector))
