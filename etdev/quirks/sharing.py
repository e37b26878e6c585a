"""State that methods share: each method declares it as written, and sets its first value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

from etdev.edge.reference import written
from etdev.edge.shared_state import overlaps, shared_states
from etdev.graph.inlining import call
from etdev.graph.rebuild import constant_input, copy_graph, rebuilt
from etdev.graph.signature import first_input, stored_values
from etdev.quirks.buffers import is_zero
from etdev.schema.quirk import Quirk, Rejection
from etdev.schema.stages import LINK
from etdev.schema.tensors import STARTED, SharedState

aten = torch.ops.aten
SEPARATE = "give each method its own with share_state=False, or --no-share-state"
UNDECOMPOSED = f"give what torch.export returned, without run_decompositions, or {SEPARATE}"


def declare(
    programs: Mapping[str, ExportedProgram], found: Sequence[SharedState]
) -> dict[str, ExportedProgram]:
    """Let every method that has a shared buffer write it, so that no constant is made of it.

    Memory begins with zeros. The runtime would load another first value once for each method, at
    any time, so that the methods set it themselves, unless it is set already.
    """
    declared = dict(programs)
    for state in found:
        for method, target in state.targets.items():
            program = declared[method]
            values = stored_values(program)
            starts_zero = is_zero(values[target])
            if starts_zero and target in written(program):
                continue
            if program.dialect != "TRAINING":
                raise ValueError(f"method {method!r} is decomposed already")
            if starts_zero:
                declared[method] = _write_back(program, target)
            else:
                declared[method] = _begin(program, target, values[target].detach())
    return declared


def _write_back(program: ExportedProgram, target: str) -> ExportedProgram:
    """Copy a buffer to itself at the end of a method; `simplify` takes the copy out again."""
    graph = copy_graph(program.graph)
    node = _input(program, graph, target)
    with graph.inserting_before(graph.output_node()):
        call(node, aten.copy_.default, node, node)
    return rebuilt(program, graph)


def _begin(program: ExportedProgram, target: str, value: torch.Tensor) -> ExportedProgram:
    """Set a buffer to its first value at the start of a method, unless one has done so before."""
    graph = copy_graph(program.graph)
    node = _input(program, graph, target)
    started, initial = f"{target}{STARTED}", f"{target}_initial"
    new = {started: torch.tensor(False), initial: value.clone()}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    with graph.inserting_before(first_input(graph, program)):
        constants = ((target.replace(".", "_"), tensor) for target, tensor in new.items())
        flag, first = (constant_input(name, tensor, near=node) for name, tensor in constants)
    argument = TensorArgument(flag.name)
    specs[flag.name] = InputSpec(InputKind.BUFFER, argument, started, persistent=False)
    argument = TensorArgument(first.name)
    specs[first.name] = InputSpec(InputKind.CONSTANT_TENSOR, argument, initial)
    with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
        begun = call(node, aten.where.self, flag, node, first)
        call(node, aten.copy_.default, node, begun)
        call(node, aten.fill_.Scalar, flag, True)
    inputs = [specs[placeholder.name] for placeholder in graph.find_nodes(op="placeholder")]
    signature = ExportGraphSignature(inputs, list(program.graph_signature.output_specs))
    changed = rebuilt(program, graph, signature, constants=new)
    # A buffer that isn't persistent is among the constants.
    held: Any = changed.state_dict if target in changed.state_dict else changed.constants
    zeros = torch.zeros_like(value)
    parameter = isinstance(held[target], torch.nn.Parameter)
    held[target] = torch.nn.Parameter(zeros, requires_grad=False) if parameter else zeros
    return changed


def _input(program: ExportedProgram, graph: Graph, target: str) -> Node:
    """Return the input of a copied graph that is a buffer."""
    specs = program.graph_signature.input_specs
    name = next(spec.arg.name for spec in specs if spec.target == target)
    inputs: Iterable[Node] = graph.find_nodes(op="placeholder")
    return next(node for node in inputs if node.name == name)


SHARED_STATE = Quirk(
    name="shared-state",
    stage=LINK,
    summary="A buffer that several methods share in eager PyTorch becomes one for each method, and "
    "loading a method sets it back to its first value.",
    upstream="pytorch/executorch#17005; executorch/exir/memory_planning.py, apply_algo, and "
    "executorch/runtime/executor/tensor_parser_exec_aten.cpp, getTensorDataPtr",
    find=shared_states,
    # Memory is planned for what they declare, see etdev/pte/shared_arena.py.
    fix=declare,
    refusal=Rejection(
        "state that methods share, {names}, can't be one buffer in the .pte: {why}", UNDECOMPOSED
    ),
)
OVERLAPPING_STATE = Quirk(
    name="overlapping-state",
    stage=LINK,
    summary="Buffers of two methods that share a part of their memory become separate ones.",
    upstream="report written 2026-11-27; executorch/exir/memory_planning.py, apply_algo",
    find=overlaps,
    refusal=Rejection(
        "{found[0].method!r} writes buffer {found[0].target!r}, and {found[1].target!r} of "
        "{found[1].method!r} is another view of its memory, which a .pte can't have",
        f"register the same tensor in both methods and slice it inside, or {SEPARATE}",
    ),
)
QUIRKS = (OVERLAPPING_STATE, SHARED_STATE)
