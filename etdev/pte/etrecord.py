"""The ETRecord that ExecuTorch's Inspector and Model Explorer read together with a .pte."""

from __future__ import annotations

from collections.abc import Mapping

from executorch.exir import EdgeProgramManager
from torch.export import ExportedProgram

from etdev.upstream.edge import etrecord, set_etrecord


def add_etrecord(
    manager: EdgeProgramManager, exported: Mapping[str, ExportedProgram], edge: EdgeProgramManager
) -> None:
    """Have a manager carry an ETRecord, unless it has one; `to_executorch` completes it.

    Args:
        manager: The delegated programs.
        exported: The ATen programs, by method.
        edge: The edge-dialect programs as they were before delegation.
    """
    try:
        from executorch.devtools.etrecord import ETRecord
    except ImportError:
        # ExecuTorch can be built without its developer tools.
        return
    # There is no public way to have a record but the conversion's, which copies all weights.
    if etrecord(manager) is None:
        record = ETRecord()
        record.add_exported_program(dict(exported))
        record.add_edge_dialect_program(edge)
        set_etrecord(manager, record)
