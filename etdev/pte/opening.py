"""Unpacking of a .pte into ExecuTorch's schema objects, safe for files from strangers.

ExecuTorch trusts its files. A small file that would unpack to a large one is rejected before.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from etdev.errors import ArtifactError, EtdevError, first_line
from etdev.pte.flatbuffer import PROGRAM, measure, schema

_Read = TypeVar("_Read")
_IDENTIFIER = slice(4, 8)
_CURE = "give a .pte that ExecuTorch wrote"
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
        raise ArtifactError(
            str(file), f"is damaged or truncated ({first_line(error)})", _CURE
        ) from error


def program_of(data: memoryview) -> tuple[Any, dict[str, tuple[int, memoryview]]]:
    """Return ExecuTorch's schema object, and segment number and bytes of all named data, by key.

    ExecuTorch's own `deserialize_pte_binary` copies the weights three times.
    """
    from etdev.upstream.emission import replace_segments

    program, segments = _unpacked(data)
    if segments is None:
        return program, {}
    named = {}
    for key, (number, _) in _named(program).items():
        place = program.segments[number]
        named[key] = number, segments[place.offset : place.offset + place.size]
    # ExecuTorch would need a copy of the named data.
    program.named_data = []
    return replace_segments(program, segments).program, named


def restored(data: memoryview) -> Any:
    """Unpack a file into ExecuTorch's PTEFile, with copies of all data."""
    from etdev.upstream.emission import PTEFile, replace_segments

    program, segments = _unpacked(data)
    if segments is None:
        return PTEFile(program=program, mutable_data=None, named_data=None)
    return replace_segments(program, bytes(segments))


def _unpacked(data: memoryview) -> tuple[Any, memoryview | None]:
    """Unpack a program without its segments; return it, and their bytes or None.

    Raises:
        ValueError: It would unpack to more than its size allows, or its segments overlap.
    """
    from etdev.upstream.emission import header_of, without_segments

    header = header_of(data)
    packed = bytes(data[: header.program_size] if header else data)
    measure(packed, schema(*PROGRAM))
    program = without_segments(packed)
    if not (header and header.segment_base_offset):
        return program, None
    segments = data[header.segment_base_offset :]
    _check_segments(program, len(segments))
    return program, segments


def _check_segments(program: Any, size: int) -> None:
    """Reject segments that overlap, since they would be copied several times."""
    if sum(segment.size for segment in program.segments) > size:
        raise ValueError("its segments overlap")
    for constants in (program.constant_segment, *(program.mutable_data_segments or ())):
        offsets: Sequence[int] = constants.offsets if constants else ()
        if any(after < before for before, after in pairwise(offsets)):
            raise ValueError("its constants overlap")
    if sum(count for _, count in _named(program).values()) > _SHARED * size:
        raise ValueError("its named data has too many names")


def _named(program: Any) -> dict[str, tuple[int, int]]:
    """Return the segment and size of all named data, by key."""
    named = {entry.key: entry.segment_index for entry in program.named_data or ()}
    return {key: (number, program.segments[number].size) for key, number in named.items()}


def _mapped(file: Path) -> memoryview:
    """Map a file into memory, so that only the bytes that are read are loaded."""
    with file.open("rb") as opened:
        if not opened.seek(0, 2):
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
