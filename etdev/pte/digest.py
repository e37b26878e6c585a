"""The digest that a .pte carries, of its own bytes and of its .ptd."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from etdev.errors import ArtifactError
from etdev.pte.artifact import DIGEST
from etdev.pte.opening import opened, unpacked

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager

_SIZE = blake3.digest_size
# Without a .ptd, or with several.
_NO_DATA = bytes(_SIZE)
# In the place of both digests while they are computed; no other data has these bytes.
_UNKNOWN = blake3(DIGEST.encode()).digest(2 * _SIZE)


def reserve(manager: EdgeProgramManager) -> None:
    """Add room for the digests to a program."""
    from etdev.upstream.emission import add_named_data

    add_named_data(manager, DIGEST, _UNKNOWN)


def seal(program: ExecutorchProgramManager) -> None:
    """Write the digests into an emitted program that has room for them."""
    from etdev.upstream.emission import external_data, pieces_of

    files = [_of_pieces(data) for data in external_data(program).values()]
    pieces = pieces_of(program)
    pieces[pieces.index(_UNKNOWN)] = _of_pieces(program) + (
        files[0] if len(files) == 1 else _NO_DATA
    )


def _of_pieces(written: Any) -> bytes:
    """Return the digest of what ExecuTorch writes to a file in pieces."""
    digest = blake3()
    written.write_to_file(SimpleNamespace(write=digest.update))
    return digest.digest()


def compare(file: Path, data: Path | None = None) -> None:
    """Compare the bytes of a .pte and of its .ptd with the digests in it, if it has them.

    Raises:
        ArtifactError: Either is not as it was written.
    """
    own, beside = opened(file, _stored)
    if own and own != opened(file, _actual):
        what = "is not as it was written: some of its bytes have changed"
        raise ArtifactError(str(file), what, "copy it again, or lower it again")
    if data and beside not in (b"", _NO_DATA) and beside != blake3().update_mmap(data).digest():
        what = f"is not the data that {file.name} was written with"
        raise ArtifactError(str(data), what, "put the file of that lowering there, or lower again")


def gaps(file: Path, has_data: bool) -> list[str]:
    """List the bytes that `compare` has no digest of."""
    own, beside = opened(file, _stored)
    if not own:
        return ["it carries no digest, so that nobody knows whether its bytes have changed"]
    return ["it carries no digest of its .ptd"] if has_data and beside == _NO_DATA else []


def _stored(data: memoryview) -> tuple[bytes, bytes]:
    _, stored = unpacked(data).named().get(DIGEST, (0, memoryview(b"")))
    return bytes(stored[:_SIZE]), bytes(stored[_SIZE:])


def _actual(data: memoryview) -> bytes:
    found = unpacked(data)
    number, stored = found.named()[DIGEST]
    start = found.start + found.program.segments[number].offset
    end = start + len(stored)
    return blake3(data[:start]).update(_UNKNOWN).update(data[end:]).digest()
