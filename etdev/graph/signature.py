"""Graph signatures, which name the inputs, outputs and constants of a program."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, Node

from etdev.graph.ops import aten_op

# Generated code may take a number for a float, whose quotients round to zero or to float32, and
# may have no code for the item of a number.
_READERS_OF_INTEGERS = (
    *(torch.ops.aten.floor_divide.default, torch.ops.aten.div.Tensor_mode),
    *(torch.ops.aten.fmod.Tensor, torch.ops.aten.item.default),
    torch.ops.aten._local_scalar_dense.default,
)


def argument(node: Node) -> TensorArgument | SymIntArgument:
    """Return the argument by which a signature names a node: a tensor or a symbolic size."""
    if isinstance(node.meta.get("val"), (torch.SymInt, int)):
        return SymIntArgument(node.name)
    return TensorArgument(node.name)


def user_inputs(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Return the name and the fake value of each input that a caller gives, in order."""
    fakes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    specs = program.graph_signature.input_specs
    names = [getattr(s.arg, "name", "") for s in specs if s.kind == InputKind.USER_INPUT]
    return [(name, fakes.get(name)) for name in names]


def stored_values(program: ExportedProgram) -> Mapping[str, Any]:
    """Return a view of a program's weights and constants, by target."""
    return ChainMap(program.state_dict, program.constants)


def unwritten_constants(program: ExportedProgram) -> dict[str, str]:
    """Return the targets of weights and constants that the method never writes, by input."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {name: target for name, target in targets.items() if target not in written}


def constant_values(program: ExportedProgram) -> dict[str, Any]:
    """Return the values of weights and constants that the method never writes, by input."""
    values = stored_values(program)
    targets = unwritten_constants(program).items()
    return {name: values[target] for name, target in targets if target in values}


def computed_from(
    program: ExportedProgram, names: Collection[str], inputless: bool = True
) -> set[str]:
    """Return the nodes computed from some graph inputs only, or from ops without inputs, too."""
    known = set(names)
    for node in program.graph.nodes:
        sources = [source.name for source in node.all_input_nodes]
        if node.op == "call_function" and known.issuperset(sources) and (sources or inputless):
            known.add(node.name)
    return known.difference(names)


def folded_integers(program: ExportedProgram) -> set[str]:
    """Return the names of integer constants without dimensions that quotients or items read.

    Leave them out in `claim_constants` if your backend's compiler folds constants into numbers:
    it would compute wrong results from an edge-dialect program.
    """
    names = set()
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        integer = isinstance(value, torch.Tensor) and not value.is_floating_point()
        read = any(aten_op(user.target) in _READERS_OF_INTEGERS for user in node.users)
        if integer and read and not value.dim():
            names.add(node.name)
    return names


def renamed(spec: OutputSpec, names: Mapping[str, str]) -> OutputSpec:
    """Return an output spec with the new name of its node."""
    name: Any = getattr(spec.arg, "name", None)
    if name not in names:
        return spec
    return OutputSpec(spec.kind, type(spec.arg)(names[name]), spec.target)  # type: ignore[call-arg]


def fitted(
    signature: ExportGraphSignature, graph: Graph, constants: Iterable[str] = ()
) -> ExportGraphSignature:
    """Return the signature of a changed graph: with fewer inputs, new constants, other results."""
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    for name in constants:
        specs[name] = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), name)
    inputs = [specs[node.name] for node in graph.find_nodes(op="placeholder")]
    results: Any = graph.output_node().args[0]
    outputs = [
        renamed(spec, {spec.arg.name: result.name}) if isinstance(result, Node) else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    return ExportGraphSignature(inputs, outputs)


def first_input(graph: Graph, program: ExportedProgram) -> Node:
    """Return the first node after the constants of a method: an input of the user, or an op."""
    users = set(program.graph_signature.user_inputs)
    first: Node = next(n for n in graph.nodes if n.op != "placeholder" or n.name in users)
    return first
