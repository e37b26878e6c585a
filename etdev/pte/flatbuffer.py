"""Flatbuffers, unpacked within bounds: a file that would become far more than its size is rejected.

A flatbuffer may refer to one table from many places, so that a small file unpacks to a huge tree,
and its lengths and offsets may be anything. ExecuTorch trusts them, so nothing is read with its
code before it was unpacked here. The schemas are those of ExecuTorch's own .fbs files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import define, field, frozen
from flatbuffers import encode, packer
from flatbuffers.table import Table

PROGRAM = ("exir/_serialize", "program.fbs", "Program")
DATA = ("extension/flat_tensor/serialize", "flat_tensor.fbs", "FlatTensor")

# Bytes that a file may unpack to for each of its own, since writers store equal strings once.
_SHARED = 8
_SMALL = 1 << 16
# A table takes at least 4 bytes of the file, if no two share any.
_TABLE = 4 * _SHARED
_UNIONS = re.compile(r"^union (\w+) \{([^}]*)\}", re.MULTILINE)
_TABLES = re.compile(r"^table (\w+) \{([^}]*)\}", re.MULTILINE)
_ENUMS = re.compile(r"^enum (\w+)\s*:\s*(\w+)\s*\{([^}]*)\}", re.MULTILINE)
_MEMBER = re.compile(r"(\w+)\s*=\s*(\d+)")
_FIELD = re.compile(r"(\w+):\s*(\[?)([\w.]+)\]?[^;]*;")
_INCLUDE = re.compile(r'^include "([^"]+)";', re.MULTILINE)
# Numbers of the schemas in the letters of `struct`.
_NUMBERS = {
    **{"bool": "?", "byte": "b", "int8": "b", "ubyte": "B", "uint8": "B", "short": "h"},
    **{"int16": "h", "ushort": "H", "uint16": "H", "int": "i", "int32": "i", "uint": "I"},
    **{"uint32": "I", "long": "q", "int64": "q", "ulong": "Q", "uint64": "Q"},
    **{"float": "f", "float32": "f", "double": "d", "float64": "d"},
}


@frozen
class _Field:
    """A field of a table: its slot in the vtable, its type, and whether it is a vector of that."""

    slot: int
    vector: bool
    kind: str


@frozen(eq=False)
class Schema:
    """A schema of flatbuffers.

    Args:
        tables: The fields of each table by name.
        unions: The tables of each union.
        enums: The members of each enum, and its letter of `struct`.
        root: The table that a file holds.
        identifier: The bytes that a file of this schema has behind its first four.
    """

    tables: Mapping[str, Mapping[str, _Field]]
    unions: Mapping[str, tuple[str, ...]]
    enums: Mapping[str, tuple[Any, str]]
    root: str
    identifier: bytes


@cache
def schema(folder: str, file: str, root: str) -> Schema:
    """Read the schema of a file format from ExecuTorch's wheel, without importing ExecuTorch."""
    text = _source(folder, file)
    unions = {name: tuple(re.findall(r"\w+", body)) for name, body in _UNIONS.findall(text)}
    enums = {
        name: (IntEnum(name, {title: int(n) for title, n in _MEMBER.findall(body)}), _NUMBERS[kind])
        for name, kind, body in _ENUMS.findall(text)
    }
    tables = {}
    for name, body in _TABLES.findall(text):
        slot, fields = 0, {}
        for title, bracket, kind in _FIELD.findall(body):
            kind = kind.rpartition(".")[2]
            # A union has a slot for its type, and then one for the table.
            slot += kind in unions
            fields[title] = _Field(4 + 2 * slot, bool(bracket), kind)
            slot += 1
        tables[name] = fields
    identifier = text.partition('file_identifier "')[2][:4]
    return Schema(tables, unions, enums, root, identifier.encode())


def _source(folder: str, file: str) -> str:
    """Return a schema without comments, with the schemas that it includes behind it."""
    spec = find_spec("executorch")
    places = [
        Path(place, folder, file) for place in (spec and spec.submodule_search_locations) or ()
    ]
    path = next(place for place in places if place.is_file())
    # Members in a comment have no kernels yet, but files have them.
    text = re.sub(r"(?m)//(?!\s*\w+ = \d+,$).*", "", path.read_text("utf-8"))
    # An include is next to the file, or it is the schema of programs.
    for name in _INCLUDE.findall(text):
        beside = folder if path.with_name(name).is_file() else PROGRAM[0]
        text += _source(beside, name).replace("file_identifier", "")
    return text


def unpack(data: memoryview | bytes, shape: Schema) -> Any:
    """Unpack a flatbuffer into objects with the attributes of ExecuTorch's own.

    Their classes have the names of the tables. An absent vector is empty, an absent text is "", an
    absent table is None. Bytes are parts of `data`, which are not copied.

    Raises:
        ValueError: It unpacks to more than a file of its size can hold, an offset points outside
            of it, or an enum or union has a member that this ExecuTorch doesn't know.
    """
    try:
        return _Unpacker(memoryview(data), shape).table(shape.root, int(_offset(data, 0)))
    # flatbuffers raises TypeError for a negative place; a union without such a member is an
    # IndexError.
    except (struct.error, TypeError, IndexError) as error:
        raise ValueError("an offset points outside of the file") from error


def _offset(data: memoryview | bytes, place: int) -> int:
    return int(encode.Get(packer.uoffset, data, place))


@cache
def _class_of(table: str) -> type[SimpleNamespace]:
    return type(table, (SimpleNamespace,), {})


@define(eq=False)
class _Unpacker:
    """An unpacking of a flatbuffer, which ends when it gets too large."""

    data: memoryview
    shape: Schema
    _size: int = field(default=0, init=False)

    def table(self, name: str, place: int) -> Any:
        """Unpack a table and everything that it refers to."""
        self._count(_TABLE)
        table = Table(self.data, place)
        fields = self.shape.tables[name].items()
        return _class_of(name)(**{title: self._value(table, one) for title, one in fields})

    def _value(self, table: Table, one: _Field) -> Any:
        offset = table.Offset(one.slot)
        if one.vector:
            start, count = (table.Vector(offset), table.VectorLen(offset)) if offset else (0, 0)
            return self._vector(one.kind, table, start, count)
        if one.kind in self.shape.unions:
            member = self._member(table, one) if offset else ""
            return self.table(member, table.Indirect(table.Pos + offset)) if member else None
        if one.kind in self.shape.tables:
            return self.table(one.kind, table.Indirect(table.Pos + offset)) if offset else None
        if one.kind == "string":
            return self._text(table.Indirect(table.Pos + offset)) if offset else ""
        enum, letter = self.shape.enums.get(one.kind) or (None, _NUMBERS[one.kind])
        number = struct.unpack_from(f"<{letter}", self.data, table.Pos + offset)[0] if offset else 0
        return number if enum is None else enum(number)

    def _vector(self, kind: str, table: Table, start: int, count: int) -> Any:
        if kind in self.shape.tables or kind == "string":
            read = self._text if kind == "string" else lambda place: self.table(kind, place)
            return [read(table.Indirect(start + 4 * index)) for index in range(count)]
        letter = _NUMBERS[kind]
        size = struct.calcsize(letter) * count
        self._count(size)
        if start + size > len(self.data):
            raise struct.error
        if letter == "B":
            return self.data[start : start + size]
        return list(struct.unpack_from(f"<{count}{letter}", self.data, start))

    def _text(self, place: int) -> str:
        size = _offset(self.data, place)
        self._count(size)
        if place + 4 + size > len(self.data):
            raise struct.error
        return bytes(self.data[place + 4 : place + 4 + size]).decode()

    def _member(self, table: Table, one: _Field) -> str:
        """Return the table that a union has; empty for none."""
        offset = table.Offset(one.slot - 2)
        number = encode.Get(packer.uint8, self.data, table.Pos + offset) if offset else 0
        return ("", *self.shape.unions[one.kind])[number]

    def _count(self, size: int) -> None:
        self._size += size
        limit = _SHARED * len(self.data) + _SMALL
        if self._size > limit:
            raise ValueError(f"{len(self.data)} bytes would unpack to more than {limit}")
