"""Unpacking of a .pte into ExecuTorch's schema objects, safe for files from strangers.

ExecuTorch trusts its files. A small file that would unpack to a large one is rejected before.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from attrs import frozen

from etdev.errors import ArtifactError, EtdevError, first_line
from etdev.pte.flatbuffer import PROGRAM, schema, unpack

_Read = TypeVar("_Read")
_IDENTIFIER = slice(4, 8)
_CURE = "give a .pte that ExecuTorch wrote"
# ExecuTorch's header, behind the first 8 bytes: its magic and length, the size of the program, and
# where the segments begin.
_HEADER = struct.Struct("<4sIQQ")
# Names that one piece of data may have, on average.
_SHARED = 64


def opened(file: Path, use: Callable[[memoryview], _Read]) -> _Read:
    """Call a function with the bytes of a .pte, and return its result.

    Raises:
        ArtifactError: The file is missing, truncated, a pipe, or not a .pte.
    """
    try:
        # Opening a pipe waits until something is written to it.
        if file.is_fifo():
            raise ArtifactError(str(file), "is a pipe, which can't be read twice", _CURE)
        data = _mapped(file)
    except OSError as error:
        raise ArtifactError(str(file), f"can't be read ({error.strerror})", _CURE) from error
    found, known = bytes(data[_IDENTIFIER]), schema(*PROGRAM).identifier
    if found != known:
        other = f"has schema {found!r}, and ExecuTorch here reads {known!r}"
        what = other if found[:2] == known[:2] else "is not a .pte file"
        raise ArtifactError(str(file), what, _CURE)
    try:
        return use(data)
    except EtdevError:
        raise
    except Exception as error:
        # ExecuTorch trusts its input, so damaged bytes may cause any error.
        what = f"is damaged or truncated ({first_line(error)})"
        raise ArtifactError(str(file), what, _CURE) from error


@frozen
class Opened:
    """A program as its file holds it: ExecuTorch's schema object, and the segments behind it.

    Args:
        program: The schema object, without the segments.
        packed: The bytes that it was unpacked from.
        segments: The bytes of each segment.
        start: Where the segments begin in the file.
    """

    program: Any
    packed: memoryview
    segments: tuple[memoryview, ...]
    start: int = 0

    def constants(self, place: Any) -> list[memoryview]:
        """Return the bytes of each constant in a segment, with the padding behind it."""
        if not (place and place.offsets and self.segments):
            return []
        data = self.segments[place.segment_index]
        return [data[start:end] for start, end in pairwise((*place.offsets, len(data)))]

    def named(self) -> dict[str, tuple[int, memoryview]]:
        """Return segment number and bytes of all named data, by key."""
        numbers = {entry.key: entry.segment_index for entry in self.program.named_data}
        return {key: (number, self.segments[number]) for key, number in numbers.items()}

    def is_constant(self, number: int) -> bool:
        """Return True if a segment of named data is a part of the constants' one."""
        return is_constant(self.program, number)

    def payload(self, delegate: Any) -> memoryview:
        """Return the bytes of a delegate."""
        index = delegate.processed.index
        inline = delegate.processed.location.name == "INLINE"
        data = self.program.backend_delegate_data
        return memoryview(data[index].data) if inline else self.segments[index]


def program_of(data: memoryview) -> tuple[Any, dict[str, tuple[int, memoryview]]]:
    """Return ExecuTorch's schema object, and segment number and bytes of all named data, by key.

    The schema object holds constants and delegates, as before it was written. ExecuTorch's own
    `deserialize_pte_binary` copies the weights three times, and imports torch.
    """
    found = unpacked(data)
    program, named = found.program, found.named()
    constants = [
        SimpleNamespace(storage=part) for part in found.constants(program.constant_segment)
    ]
    program.constant_buffer = constants or program.constant_buffer
    delegates = [delegate for plan in program.execution_plan for delegate in plan.delegates]
    program.backend_delegate_data = [
        SimpleNamespace(data=found.payload(delegate)) for delegate in delegates
    ]
    # Each has an entry of its own, also those that share a segment.
    for index, delegate in enumerate(delegates):
        delegate.processed.index = index
    return program, named


def unpacked(data: memoryview) -> Opened:
    """Unpack a program and find its segments.

    Raises:
        ValueError: It would unpack to more than its size allows, or its segments overlap.
    """
    size, start = header_of(data)
    packed = data[: size or len(data)]
    program = unpack(packed, schema(*PROGRAM))
    if not start:
        return Opened(program, packed, ())
    _check_segments(program, len(data) - start)
    segments = tuple(
        data[start + segment.offset : start + segment.offset + segment.size]
        for segment in program.segments
    )
    for segment, found in zip(program.segments, segments, strict=True):
        if len(found) < segment.size:
            raise ValueError("a segment runs past the end")
    return Opened(program, packed, segments, start)


def header_of(data: memoryview) -> tuple[int, int]:
    """Return the size of the program and the start of the segments; zeros without a header."""
    if len(data) < 8 + _HEADER.size:
        return 0, 0
    magic, length, size, start = _HEADER.unpack_from(data, 8)
    return (size, start) if magic == b"eh00" and length >= _HEADER.size else (0, 0)


def is_constant(program: Any, number: int) -> bool:
    """Return True if the segment of named data is a part of the constants' one."""
    place, own = program.constant_segment, program.segments[number]
    if not (place and place.offsets):
        return False
    whole = program.segments[place.segment_index]
    return bool(own.size) and 0 <= own.offset - whole.offset < whole.size


def _check_segments(program: Any, size: int) -> None:
    """Reject segments that overlap, since they would be copied several times.

    Named data may be a part of the constants, see etdev/pte/deduplication.py.
    """
    named = {entry.key: entry.segment_index for entry in program.named_data}
    numbers = set(named.values())
    for own in (numbers, set(range(len(program.segments))) - numbers):
        if sum(program.segments[number].size for number in own) > size:
            raise ValueError("its segments overlap")
    for constants in (program.constant_segment, *program.mutable_data_segments):
        offsets: Sequence[int] = constants.offsets if constants else ()
        if any(after < before for before, after in pairwise(offsets)):
            raise ValueError("its constants overlap")
    if sum(program.segments[number].size for number in named.values()) > _SHARED * size:
        raise ValueError("its named data has too many names")


def _mapped(file: Path) -> memoryview:
    """Map a file into memory, so that only the bytes that are read are loaded."""
    with file.open("rb") as opened:
        if not opened.seek(0, 2):
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
