"""ExecuTorch's conversion to the edge dialect, and parts of programs without a setter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.program import _program
from executorch.exir.program._program import lift_constant_tensor_pass as lift_constants
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
from torch.fx.passes.infra.pass_base import PassResult

from etdev.upstream.operators import OpOverload
from etdev.upstream.tracing import exclusive_tracing

__all__ = ["LazyGraphModule", "Verifier", "lift_constants"]
Pass = Callable[[GraphModule], PassResult]
# Settings with which ExecuTorch keeps ATen's copies, so that ATen can replace them. It doesn't
# verify them, since it knows only those of dim orders for complex numbers.
WITHOUT_DIM_ORDER = EdgeCompileConfig(_skip_dim_order=True, _check_ir_validity=False)


def to_edge_program(
    config: EdgeCompileConfig,
    program: ExportedProgram,
    ops: Sequence[OpOverload],
    wrap: Callable[[Pass], Pass],
    last: Callable[[], Pass],
) -> ExportedProgram:
    """Convert a decomposed program as ExecuTorch does, with some ops kept, without verifying it.

    `wrap` is given each of ExecuTorch's passes over ATen ops, and returns the pass that runs in
    its place. `last` makes the pass that stands for both of its passes to edge ops.
    """
    passes = _program._get_aten_to_edge_passes

    def wrapped(config: EdgeCompileConfig) -> tuple[list[Pass], Sequence[Pass]]:
        before, after = passes(config)
        return [wrap(step) for step in before], after

    unchanged = partial(PassResult, modified=False)
    both: Any = {"OpReplacePass": last, "MemoryFormatOpsPass": lambda: unchanged}
    parts = {} if config._skip_dim_order else both
    with exclusive_tracing(), patch.multiple(_program, _get_aten_to_edge_passes=wrapped, **parts):
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
