"""Bombs: small files that would unpack to large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers


def table(builder: Any, slots: int, **fields: int) -> Any:
    """A table with an offset in some of its slots: `_1=...` is in slot 1."""
    builder.StartObject(slots)
    for name, offset in fields.items():
        builder.PrependUOffsetTRelativeSlot(int(name[1:]), offset, 0)
    return builder.EndObject()


def vector(builder: Any, offset: int, count: int) -> Any:
    """A vector of one table, again and again."""
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def bomb(path: Path, count: int) -> Path:
    """A .pte of many plans that are one, of many chains that are one, of many instructions."""
    builder = flatbuffers.Builder(0)
    instructions = vector(builder, table(builder, 2), count)
    chains = vector(builder, table(builder, 4, _2=instructions), count)
    plans = vector(builder, table(builder, 10, _5=chains), count)
    builder.Finish(table(builder, 8, _1=plans), file_identifier=b"ET12")
    path.write_bytes(bytes(builder.Output()))
    return path
