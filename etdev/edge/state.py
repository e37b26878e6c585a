"""State: buffers that a method writes, so that the .pte keeps them as eager PyTorch does.

ExecuTorch appends a copy to each written buffer at the end of the method. It leaves that copy out
if the new value is an input, doesn't store what a written buffer starts with, and takes a written
parameter for an output. Each is put right in the program here, before anything is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx import Graph, Node

from etdev.edge.initial_values import mark_initial_values, own_initial_values, values_with
from etdev.errors import LoweringError
from etdev.graph.nodes import op_name
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import argument

_WRITES = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)
_VIEW = "aten.view_copy.default"


def with_own_updates(program: ExportedProgram) -> ExportedProgram:
    """Give every buffer that a method writes a new value of its own.

    A new value that is a buffer itself, or that two buffers have in common, is cloned, and so is an
    output that would be read after the buffer it comes from is written.

    Args:
        program: A functional program in the ATen or the edge dialect; it is not changed.
    """
    cloned = list(_shared_results(program))
    if not cloned:
        return program
    graph = copy_graph(program.graph)
    results = _results(graph)
    edge = program.dialect == "EDGE"
    clone = exir_ops.edge.aten.clone.default if edge else torch.ops.aten.clone.default
    specs = list(program.graph_signature.output_specs)
    for index in cloned:
        source = results[index]
        with graph.inserting_before(graph.output_node()):
            results[index] = graph.call_function(clone, (source,))
        results[index].meta = {
            key: source.meta[key] for key in ("val", "stack_trace") if key in source.meta
        }
        spec = specs[index]
        specs[index] = OutputSpec(spec.kind, argument(results[index]), spec.target)
    graph.output_node().args = (tuple(results),)
    inputs = list(program.graph_signature.input_specs)
    return rebuilt(program, graph, ExportGraphSignature(inputs, specs), program.graph_module)


def completed(program: ExportedProgram, method: str) -> ExportedProgram:
    """Make an edge-dialect program keep its state as the model does.

    Args:
        program: An edge-dialect program; it is not changed.
        method: Its name, for messages.

    Raises:
        LoweringError: The method writes to one of its inputs.
    """
    signature = program.graph_signature
    if not any(spec.kind in _WRITES for spec in signature.output_specs):
        return program
    refuse_written_inputs(program, method)
    program = with_own_updates(program)
    graph = copy_graph(program.graph)
    completed = rebuilt(program, graph, _without_parameters(program), program.graph_module)
    _detach_written(completed)
    mark_initial_values(completed)
    own_initial_values(completed)
    return completed


def refuse_unkept(program: ExportedProgram) -> None:
    """Refuse a program whose state ExecuTorch's own loop would lose.

    Raises:
        LoweringError: It writes a parameter, an input, or a buffer without a new value of its own.
    """
    for spec in unkept(program):
        raise LoweringError(
            "partitioner",
            f"ExecuTorch would not write {spec.target or spec.arg.name!r} as the model does",
            "lower with etdev.Lowerer, which completes such a program or says what to change",
        )


def unkept(program: ExportedProgram) -> list[OutputSpec]:
    """What a program writes that ExecuTorch's own loop would not write as the model does."""
    specs = program.graph_signature.output_specs
    lost = [specs[index] for index in _shared_results(program)]
    return lost + [spec for spec in specs if spec.kind in _WRITES[1:]]


def _shared_results(program: ExportedProgram) -> Iterator[int]:
    """Positions of the results that have to be cloned."""
    specs = program.graph_signature.output_specs
    inputs = _inputs_by_target(program)
    written: set[str] = set()
    updates: set[Node] = set()
    targets = {inputs[spec.target] for spec in specs if spec.kind in _WRITES}
    # Written parameters become buffers.
    buffers = targets.union(program.graph_signature.inputs_to_buffers)
    for index, (spec, result) in enumerate(zip(specs, _results(program.graph), strict=True)):
        if not isinstance(result, Node):
            continue
        if spec.kind not in _WRITES:
            if result.op == "placeholder" and result.name in targets:
                yield index
            continue
        target = inputs[spec.target]
        if (
            (result.name in buffers and result.name != target)
            or result in updates
            # ExecuTorch makes a view of a view_copy, and reads it when it writes this buffer.
            or _base(result).name in written
        ):
            yield index
        updates.add(result)
        written.add(target)


def _base(node: Node) -> Node:
    """What a node is a view of, in ExecuTorch's memory."""
    while op_name(node) == _VIEW:
        node = node.all_input_nodes[0]
    return node


def _results(graph: Graph) -> list[Any]:
    results: Any = graph.output_node().args[0]
    return list(results)


def _inputs_by_target(program: ExportedProgram) -> dict[Any, str]:
    """The name of each input, by what the specs of writes call it."""
    return {
        spec.target if spec.target is not None else spec.arg.name: spec.arg.name
        for spec in program.graph_signature.input_specs
        if hasattr(spec.arg, "name")
    }


def refuse_written_inputs(program: ExportedProgram, method: str) -> None:
    """Refuse a method that writes to its inputs, which some of torch's own passes fail on, too.

    Raises:
        LoweringError: It does.
    """
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise LoweringError(
                "edge conversion",
                f"method {method!r} writes to its input {spec.target!r}, and ExecuTorch's runtime "
                "would write to a copy of it",
                "clone the input first, and return the new value if it is needed",
            )


def _without_parameters(program: ExportedProgram) -> ExportGraphSignature:
    """The signature with written parameters as buffers, which ExecuTorch can write to."""
    signature = program.graph_signature
    written = {
        spec.target for spec in signature.output_specs if spec.kind is OutputKind.PARAMETER_MUTATION
    }
    return ExportGraphSignature(
        [
            InputSpec(InputKind.BUFFER, spec.arg, spec.target, persistent=True)
            if spec.kind is InputKind.PARAMETER and spec.target in written
            else spec
            for spec in signature.input_specs
        ],
        [
            OutputSpec(OutputKind.BUFFER_MUTATION, spec.arg, spec.target)
            if spec.kind is OutputKind.PARAMETER_MUTATION
            else spec
            for spec in signature.output_specs
        ],
    )


def _detach_written(program: ExportedProgram) -> None:
    """Free written buffers of gradients; nothing writes in place to a tensor that requires them."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    for node in program.graph.find_nodes(op="placeholder"):
        target = signature.inputs_to_buffers.get(node.name)
        if target in written and node.meta["val"].requires_grad:
            node.meta["val"] = node.meta["val"].detach()
            values = values_with(program, target)
            values[target] = values[target].detach()
