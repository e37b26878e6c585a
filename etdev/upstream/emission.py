"""ExecuTorch's data next to a program, and its reader of traces."""

from __future__ import annotations

from typing import Any

from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, memory_planning
from executorch.exir._serialize._named_data_store import NamedDataStore, NamedDataStoreOutput
from executorch.exir._serialize.data_serializer import DataEntry

__all__ = ["DataEntry", "NamedDataStore", "NamedDataStoreOutput"]

# What a backend says of its delegate for ExecuTorch's developer tools: an attribute of its result,
# and a key of the delegate's `meta`.
DELEGATE_INFO = "_delegate_info_meta"

# Memory planning gives the result of an op that writes in place the memory that it writes.
PLANS_WRITES = hasattr(memory_planning, "_alias_inplace_result_specs")


def add_named_data(manager: EdgeProgramManager, key: str, data: bytes) -> None:
    """Store data under a key of a program; ExecuTorch takes data from delegates only."""
    manager._named_data_store.add_named_data(key, data)


def content_of(buffer: Any) -> bytes:
    """Return the bytes of named data; a buffer in a file can be read as a prefix only."""
    return bytes(buffer.prefix(len(buffer)) if hasattr(buffer, "prefix") else memoryview(buffer))


def external_data(program: ExecutorchProgramManager) -> dict[str, Any]:
    """Return the data that an emitted program keeps in `.ptd` files, by their names."""
    return dict(program._tensor_data or {})


def pieces_of(program: ExecutorchProgramManager) -> list[Any]:
    """Return the pieces of a program's file, which may be replaced by others of the same size."""
    pieces: list[Any] = program._pte_data._buffers
    return pieces


def replace_pieces(program: ExecutorchProgramManager, pieces: list[Any]) -> None:
    """Give a program's file other pieces."""
    data = program._pte_data
    data._buffers, data._byte_size = pieces, sum(map(len, pieces))


def instruction_of(event: Any) -> int:
    """Return the number of the instruction that an event of ExecuTorch's Inspector is about."""
    return int(event._instruction_id)
