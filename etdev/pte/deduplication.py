"""Bytes that a program's constants and its named data have in common, stored once.

ExecuTorch keeps the constants that kernels read in one segment and what backends read in others, so
that an embedding that is tied to an output layer would be in the file twice.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from flatbuffers.table import Table

from etdev.pte.flatbuffer import PROGRAM, schema, unpack
from etdev.pte.opening import header_of
from etdev.upstream.emission import content_of, pieces_of, replace_pieces

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager

# Smaller data is not shared, and later segments move by multiples of it to stay aligned.
PAGE = 4096
# Where a file says how many bytes its segments have.
_SEGMENTS_SIZE = 32


def share(program: ExecutorchProgramManager) -> None:
    """Make named data a part of the constants where an emitted program has the bytes of both."""
    pieces = pieces_of(program)
    head = bytearray(content_of(pieces[0]))
    found, (_, begin) = unpack(memoryview(head), schema(*PROGRAM)), header_of(memoryview(head))
    if not (begin and found.constant_segment and found.constant_segment.offsets):
        return
    place = found.segments[found.constant_segment.segment_index]
    numbers = {entry.segment_index for entry in found.named_data}
    names = {(found.segments[n].offset, found.segments[n].size): n for n in numbers}
    starts = list(accumulate(map(len, pieces), initial=-begin))
    large = {
        start: piece for start, piece in zip(starts, pieces, strict=False) if len(piece) >= PAGE
    }
    sizes = {len(piece) for start, piece in large.items() if (start, len(piece)) in names}
    constants = {
        content_of(piece): start
        for start, piece in large.items()
        if place.offset <= start < place.offset + place.size and len(piece) in sizes
    }
    kept, ends, moves, shared = [], [], [0], dict[int, int]()
    for start, piece in zip(starts, pieces, strict=False):
        number = names.get((start, len(piece))) if len(piece) >= PAGE else None
        twin = None if number is None else constants.get(content_of(piece))
        if number is None or twin is None or twin >= start:
            kept.append(piece)
            continue
        shared[number] = twin
        kept.append(bytes(len(piece) % PAGE))
        ends.append(start)
        moves.append(moves[-1] + len(piece) // PAGE * PAGE)
    if shared:
        offsets = [
            shared.get(number, segment.offset - moves[bisect_left(ends, segment.offset)])
            for number, segment in enumerate(found.segments)
        ]
        _write_offsets(head, offsets)
        (size,) = struct.unpack_from("<Q", head, _SEGMENTS_SIZE)
        struct.pack_into("<Q", head, _SEGMENTS_SIZE, size - moves[-1])
        replace_pieces(program, [bytes(head), *kept[1:]])


def _write_offsets(head: bytearray, offsets: list[int]) -> None:
    """Write the offsets of segments into a packed program; those that are 0 stay."""
    tables = schema(*PROGRAM).tables
    root = Table(head, int.from_bytes(head[:4], "little"))
    vector = root.Vector(root.Offset(tables["Program"]["segments"].slot))
    for number, offset in enumerate(offsets):
        segment = Table(head, root.Indirect(vector + 4 * number))
        if field := segment.Offset(tables["DataSegment"]["offset"].slot):
            struct.pack_into("<Q", head, segment.Pos + field, offset)
