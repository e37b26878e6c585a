"""Torch's op overloads, its higher-order ops, and ExecuTorch's edge ops that wrap overloads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

# Registers torch.ops.et_copy.
import executorch.exir.passes._device_copy_ops_registry  # noqa: F401
import torch
from executorch.exir.dialects._ops import ops as edge_ops
from executorch.exir.dialects.edge._ops import EdgeDialectFunctionSchema, EdgeOpOverload
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

__all__ = ["EdgeOpOverload", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "edge_ops"]

# ExecuTorch's copies from the host to a device and back.
H2D = torch.ops.et_copy._h2d_copy.default
D2H = torch.ops.et_copy._d2h_copy.default

# torch 2.14 sorts the inputs of a fused subgraph. (A TorchVersion compares as a version.)
SORTS_INPUTS = torch.__version__ >= "2.14"
# Before 2.14 a range of int64 is rounded before its numbers are counted.
ROUNDS_RANGES = torch.__version__ < "2.14"


def overload_of(target: Any) -> OpOverload | None:
    """Return the overload that the target of a node is, or wraps as an edge op; None otherwise."""
    # An OpOverload has an `_op` too, which is a function of C++.
    op = target if isinstance(target, OpOverload) else getattr(target, "_op", None)
    return op if isinstance(op, OpOverload) else None


def ops_of(program: ExportedProgram) -> Any:
    """Return the namespace of aten ops in the dialect of a program."""
    return edge_ops.edge.aten if program.dialect == "EDGE" else torch.ops.aten


def base_name(target: Any) -> str:
    """Return the name of an op without namespace and overload, such as `add`; empty without op."""
    op = overload_of(target)
    return str(op.overloadpacket.__name__) if op else ""


def schema_of(op: OpOverload) -> torch.FunctionSchema:
    """Return the signature of an op: its arguments, its returns, and what aliases what."""
    return op._schema


def arguments_of(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of an op by name, without those that are left out."""
    names = (argument.name for argument in schema_of(op).arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


@functools.cache
def edge_dtypes(op: OpOverload) -> frozenset[torch.dtype]:
    """Return the dtypes that ExecuTorch's verifier takes for at least one tensor of an op."""
    known = EdgeDialectFunctionSchema(op._schema).dtype_constraint.type_alias.values()
    return frozenset(dtype for allowed in known for dtype in allowed.types)


def is_composite(op: OpOverload) -> bool:
    """Return True if torch composes an op of other ops, and its gradient of theirs."""
    return bool(op._can_decompose())
