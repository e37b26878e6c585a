"""Parts of exported programs and of their symbolic sizes that can't be set in public."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv

__all__ = ["Verifier"]


def with_parts(program: ExportedProgram, **parts: Any) -> ExportedProgram:
    """Return a shallow copy of a program with other `range_constraints`, say, not verified."""
    changed = copy.copy(program)
    for name, value in parts.items():
        setattr(changed, f"_{name}", value)
    return changed


def in_shape_env(size: Any, env: ShapeEnv, renamed: Mapping[Any, Any]) -> Any:
    """Return a symbolic size in another shape env, with other names of some symbols."""
    node = size.node.with_shape_env(env)
    if renamed:
        node._expr = node._expr.xreplace(renamed)
    return type(size)(node)


def sorts_inputs() -> bool:
    """Return True if torch fuses nodes into a subgraph with its inputs in graph order.

    It does from 2.14 on. ExecuTorch's own path to a delegate, and so its bytes, have that order.
    """
    return torch.__version__ >= "2.14"


def modal_layers() -> tuple[type[torch.nn.Module], ...]:
    """Return the classes of layers that compute differently in training mode."""
    return torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase
