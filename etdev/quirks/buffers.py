"""Written parameters and buffers: their kind, their gradients, and what they start with."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import stored_values
from etdev.quirks.state import UNKEPT, MethodResult, of_kind
from etdev.schema.quirk import Quirk
from etdev.schema.stages import VALIDATE
from etdev.upstream.fake_tensors import FakeTensor

# ExecuTorch's emitter stores the initial value of a written buffer that has this key.
_INITIAL = "et_init_buffer"
# Ops that need a tensor for its shape, and its value only if they are given another op.
_SHAPE_ONLY = ("full_like", "empty_like", "zeros_like", "ones_like", "rand_like", "sym_size")


def make_buffers(program: ExportedProgram, found: Sequence[MethodResult]) -> ExportedProgram:
    """Make written parameters buffers, which ExecuTorch can write to."""
    written, signature = {result.spec.target for result in found}, program.graph_signature
    inputs, outputs = list(signature.input_specs), list(signature.output_specs)
    for index, spec in enumerate(inputs):
        if spec.kind is InputKind.PARAMETER and spec.target in written:
            inputs[index] = replace(spec, kind=InputKind.BUFFER, persistent=True)
    for result in found:
        outputs[result.index] = replace(result.spec, kind=OutputKind.BUFFER_MUTATION)
    return rebuilt(program, copy_graph(program.graph), ExportGraphSignature(inputs, outputs))


def _written_buffers(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    """Yield the inputs that are written buffers, with their targets."""
    written = set(program.graph_signature.buffers_to_mutate.values())
    targets = program.graph_signature.inputs_to_buffers
    for node in program.graph.find_nodes(op="placeholder"):
        if (target := targets.get(node.name)) in written:
            yield node, str(target)


def initial_values(program: ExportedProgram, zero: Container[str] = ()) -> Iterator[Node]:
    """Yield the written buffers whose first value is read and not zero, or that are marked.

    Args:
        program: An edge-dialect program.
        zero: Targets of buffers that are known to start with zeros.
    """
    values = stored_values(program)
    for node, target in _written_buffers(program):
        starts_zero = target in zero or is_zero(values[target])
        ops = [op_name(user).removeprefix("aten.") for user in node.users]
        is_read = not all(op.startswith(_SHAPE_ONLY) for op in ops)
        if _INITIAL in node.meta or (is_read and not starts_zero):
            yield node


def is_zero(value: torch.Tensor) -> bool:
    """Return True if no bit of a tensor is set, not even a zero's sign; False without data."""
    if isinstance(value, FakeTensor):
        return False
    return not value.detach().contiguous().reshape(-1).view(torch.uint8).any()


def mark_initial(nodes: Sequence[Node]) -> None:
    """Mark written buffers, so that ExecuTorch stores their initial values."""
    for node in nodes:
        node.meta[_INITIAL] = True


def store_initial(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Store what buffers hold now, though the model may run before the .pte is written."""
    names, program = {node.name for node in found}, rebuilt(program, copy_graph(program.graph))
    for node, target in _written_buffers(program):
        if node.name in names:
            mark_initial([node])
            # A buffer that isn't persistent is among the constants.
            values: Any = program.state_dict if target in program.state_dict else program.constants
            values[target] = values[target].detach().clone()
    return program


WRITTEN_PARAMETERS = Quirk(
    name="written-parameters",
    stage=VALIDATE,
    summary="The new value of a parameter becomes an output more, and the parameter stays.",
    upstream="report written 2026-11-27; "
    "executorch/exir/passes/insert_write_back_for_buffers_pass.py, "
    "insert_write_back_for_buffers_pass",
    find=of_kind(OutputKind.PARAMETER_MUTATION),
    fix=make_buffers,
    in_loop=UNKEPT,
)
INITIAL_VALUES = Quirk(
    name="initial-values",
    stage=VALIDATE,
    summary="The value that a written buffer starts with is not stored in the .pte.",
    upstream="pytorch/executorch#11309; executorch/exir/emit/_emitter.py, placeholder, stores it "
    "only for buffers with et_init_buffer in their metadata",
    find=initial_values,
    fix=store_initial,
)
# Written parameters are buffers for the rows after them.
QUIRKS = (WRITTEN_PARAMETERS, INITIAL_VALUES)
