"""Differences between the releases of torch and ExecuTorch that etdev supports."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from etdev.errors import RunError


def load_program(source: Path | bytes, data: Path | None = None, trace: bool = False) -> Any:
    """Load a `.pte` with ExecuTorch's runtime.

    Args:
        source: Path of the `.pte`, or its bytes.
        data: Its `.ptd`, if it has one.
        trace: Have the runtime write an ETDump.

    Raises:
        RunError: It has a `.ptd`, and ExecuTorch is older than 1.5, whose runtime for Python
            takes none.
    """
    from executorch.runtime import Runtime

    load = Runtime.get().load_program
    options: dict[str, Any] = {"enable_etdump": True} if trace else {}
    if data is not None:
        if "data_path" not in inspect.signature(load).parameters:
            cure = "ExecuTorch loads a .ptd here from 1.5 on"
            raise RunError(str(source), f"needs {data.name}", cure)
        options["data_path"] = data
    return load(source, **options)


@cache
def sorts_inputs() -> bool:
    """Return True if torch fuses nodes into a subgraph with its inputs in graph order.

    It does from 2.14 on. ExecuTorch's own path to a delegate, and so its bytes, have that order.
    """
    import torch

    return Version(torch.__version__).release >= (2, 14)
