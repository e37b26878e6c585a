"""ExecuTorch's conversion to the edge dialect, and parts of programs without a setter."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.program import _program
from executorch.exir.program._program import lift_constant_tensor_pass as lift_constants
from torch._export.verifier import Verifier
from torch.export import ExportedProgram

from etdev.upstream.operators import OpOverload
from etdev.upstream.shortcuts.graphs import interpret
from etdev.upstream.shortcuts.passes import fewer_passes
from etdev.upstream.tracing import exclusive_tracing

__all__ = ["Verifier", "lift_constants"]
# Settings with which ExecuTorch keeps ATen's copies, so that ATen can replace them. It doesn't
# verify them, since it knows only those of dim orders for complex numbers.
WITHOUT_DIM_ORDER = EdgeCompileConfig(_skip_dim_order=True, _check_ir_validity=False)


def to_edge_program(
    config: EdgeCompileConfig, program: ExportedProgram, ops: Sequence[OpOverload]
) -> ExportedProgram:
    """Convert a decomposed program, which may be changed, as ExecuTorch does; some ops are kept.

    It is not verified, since ops outside Core ATen stay, and methods are verified together.
    """
    # A dozen passes make a graph each, and only the last graph is made a program.
    interpret(program.graph)
    with exclusive_tracing(), fewer_passes(config):
        return _program._generate_edge_program(unverified(config), program, preserve_ops=ops)  # type: ignore[no-any-return]


def with_parts(program: ExportedProgram, **parts: Any) -> ExportedProgram:
    """Return a shallow copy of a program with other `range_constraints`, say, not verified."""
    changed = copy.copy(program)
    for name, value in parts.items():
        setattr(changed, f"_{name}", value)
    return changed


def verifies(config: EdgeCompileConfig) -> bool:
    """Return True if ExecuTorch verifies programs that it converts with these settings."""
    return bool(config._check_ir_validity)


def unverified(config: EdgeCompileConfig) -> EdgeCompileConfig:
    """Return a copy of settings with which ExecuTorch doesn't verify programs."""
    return replace(config, _check_ir_validity=False)


def excepted(config: EdgeCompileConfig) -> set[OpOverload]:
    """Return the ops that the runtime has kernels for by the settings."""
    return {*config._core_aten_ops_exception_list, *config.preserve_ops}


def set_etrecord(manager: EdgeProgramManager, record: Any) -> None:
    """Attach an ETRecord to a manager; `to_executorch` completes the record."""
    manager._etrecord = record
