"""Initial values: what written buffers start with, so that the .pte starts as the model does.

ExecuTorch's emitter stores it only for buffers that are marked.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import op_name

# ExecuTorch's emitter stores the initial value of a written buffer that has this key.
_INITIAL = "et_init_buffer"
# Ops that need a tensor for its shape, and its value only if they are given another op.
_SHAPE_ONLY = ("full_like", "empty_like", "zeros_like", "ones_like", "rand_like", "sym_size")


def mark_initial_values(program: ExportedProgram, zero: Container[str] = ()) -> None:
    """Have ExecuTorch store what written buffers start with.

    One that starts with zeros, or whose first value is never read, is right without.

    Args:
        program: An edge-dialect program; the metadata of its inputs is changed.
        zero: Targets of buffers that are known to start with zeros.
    """
    values: Mapping[str, Any] = {**program.constants, **program.state_dict}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    written = set(program.graph_signature.buffers_to_mutate.values())
    for name, target in program.graph_signature.inputs_to_buffers.items():
        starts_zero = target in zero or is_zero(values[target])
        if target in written and _is_read(nodes[name]) and not starts_zero:
            nodes[name].meta[_INITIAL] = True


def own_initial_values(program: ExportedProgram) -> None:
    """Have the program start with what buffers hold now, though the model may run meanwhile."""
    buffers = program.graph_signature.inputs_to_buffers
    for node in program.graph.find_nodes(op="placeholder"):
        if _INITIAL in node.meta:
            target = buffers[node.name]
            values = values_with(program, target)
            values[target] = values[target].detach().clone()


def values_with(program: ExportedProgram, target: str) -> dict[str, Any]:
    """Where a program has the value of a buffer; one that isn't persistent is among constants."""
    values: dict[str, Any] = program.state_dict
    return values if target in values else program.constants


def _is_read(node: Node) -> bool:
    return any(
        not op_name(user).removeprefix("aten.").startswith(_SHAPE_ONLY) for user in node.users
    )


def is_zero(value: torch.Tensor) -> bool:
    """Whether no bit of a tensor is set, not even the sign of a zero; False if it has no data."""
    if isinstance(value, FakeTensor):
        return False
    return not value.detach().contiguous().reshape(-1).view(torch.uint8).any()
