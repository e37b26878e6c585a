"""Data files: the .ptd next to a .pte, with the constants that the program keeps outside."""

from __future__ import annotations

import glob
import struct
from pathlib import Path

from etdev.errors import ArtifactError, first_line
from etdev.pte.artifact import Artifact
from etdev.pte.flatbuffer import DATA, schema, unpack

# The offset and identifier of the flatbuffer, then ExecuTorch's header: its magic and length, where
# the flatbuffer ends.
_HEAD = struct.Struct("<8x4s4xQQ")
_MAGIC = b"FH01"


def keys_of(path: Path) -> frozenset[str]:
    """Return the keys of all data in a .ptd.

    Raises:
        ArtifactError: The file can't be read, or is not a .ptd.
    """
    try:
        if path.is_fifo():
            raise ValueError("it is a pipe")
        size = path.stat().st_size
        with path.open("rb") as opened:
            head = opened.read(min(size, _HEAD.size))
            if len(head) < _HEAD.size:
                raise ValueError("it ends in its header" if head else "it is empty")
            magic, offset, length = _HEAD.unpack(head)
            if magic != _MAGIC:
                raise ValueError("it is not a .ptd")
            # The constants behind it are left where they are.
            packed = head + opened.read(max(min(offset + length, size) - len(head), 0))
        return frozenset(entry.key for entry in unpack(packed, schema(*DATA)).named_data)
    except (OSError, ValueError, struct.error) as error:
        what, cure = f"can't be read ({first_line(error)})", "give a .ptd that ExecuTorch wrote"
        raise ArtifactError(str(path), what, cure) from error


def outside(facts: Artifact) -> dict[str, str]:
    """Return the data that a .pte looks up and doesn't hold: the reader by key."""
    needed: dict[str, str] = {}
    for method in facts.methods:
        for key in method.external:
            needed.setdefault(key, f"a constant of {method.name}")
        for index, delegate in enumerate(method.delegates):
            for key in delegate.data:
                needed.setdefault(key, f"delegate {index} ({delegate.backend_id}) of {method.name}")
    return {key: who for key, who in needed.items() if key not in facts.named}


def find(facts: Artifact, path: Path, data: Path | None = None) -> Path | None:
    """Find the .ptd that a .pte needs; None if it keeps nothing outside.

    That is `data` if it is given, else the one with the name of the .pte, as `Lowered.save` writes
    it, else one with all keys.

    Raises:
        ArtifactError: It can't be read, is not there, or lacks a key.
    """
    missing, named = outside(facts), [*path.parent.glob(f"{glob.escape(path.stem)}.*.ptd")]
    files = sorted(path.parent.glob("*.ptd")) if missing else []
    if data or len(named) == 1:
        files = [data] if data else named
    what = f"keeps constants in a .ptd that is not in {path.parent}"
    for file in files:
        absent = missing.keys() - keys_of(file)
        if not absent:
            return file
        key = min(absent)
        what = f"keeps {len(absent)} constants outside that are not in {file.name}; "
        what += f"{missing[key]} needs {key}"
    if missing:
        raise ArtifactError(str(path), what, "put it there, or name it with --data")
    return None
