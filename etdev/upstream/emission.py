"""ExecuTorch's data next to a program, and its readers of `.pte` files and traces."""

from __future__ import annotations

from typing import Any

from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
from executorch.exir._serialize import _program
from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
from executorch.exir._serialize._program import PTEFile
from executorch.exir._serialize.data_serializer import DataEntry
from executorch.exir.backend.backend_details import PreprocessResult

__all__ = ["DataEntry", "NamedDataStoreOutput", "PTEFile"]

# The key of a delegate's `meta` for the value that `delegate_info` returns.
DELEGATE_INFO = "_delegate_info_meta"


def add_named_data(manager: EdgeProgramManager, key: str, data: bytes) -> None:
    """Have a program carry data under a key; ExecuTorch takes data from delegates only."""
    manager._named_data_store.add_named_data(key, data)


def delegate_info(result: PreprocessResult) -> Any:
    """Return what a backend says of its delegate for ExecuTorch's developer tools, or None."""
    return getattr(result, DELEGATE_INFO, None)


def external_data(program: ExecutorchProgramManager) -> dict[str, Any]:
    """Return the data that an emitted program keeps in `.ptd` files, by their names."""
    return dict(program._tensor_data or {})


def header_of(data: memoryview) -> Any:
    """Return the header of a `.pte` that has segments; None without one."""
    header = _program._get_extended_header(data)
    return header if header is not None and header.is_valid() else None


def without_segments(flatbuffer: bytes) -> Any:
    """Return ExecuTorch's schema object of a program, without the data of its segments."""
    return _program._flatbuffer_to_program(flatbuffer)


def replace_segments(program: Any, segments: memoryview | bytes) -> Any:
    """Return ExecuTorch's PTEFile of a program, with the data of its segments."""
    return _program._restore_segments(program, segments)


def instruction_of(event: Any) -> int:
    """Return the number of the instruction that an event of ExecuTorch's Inspector is about."""
    return int(event._instruction_id)
