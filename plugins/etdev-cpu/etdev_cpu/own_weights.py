"""A weight or bias of its own for each layer that XNNPACK prepares by its name.

The pass for one-dimensional convolutions gives a kernel a fourth dimension, and then takes the next
convolution of this kernel for a two-dimensional one. A batch norm without a layer becomes a
convolution whose weights are named after the norm's: the next norm with this weight, or the next
one that has none, would be given those of the first. And a norm without a bias can't be fused.
A bias is quantised with the scales of its first layer, whatever else reads it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from executorch.backends.transforms.utils import create_constant_placeholder
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import stored_values, unwritten_constants
from etdev_cpu.layers import (
    CONVOLUTION,
    LAYERS,
    NORM,
    argument,
    chain,
    is_layer,
    is_one_dimensional,
    short,
)
from etdev_cpu.quantisers import scales_of_bias

P = TypeVar("P", bound=ExportedProgram)
_WEIGHT, _BIAS, _MEAN = 1, 2, 3


def give_own_weights(program: P) -> P:
    """Give layers but the first of a weight or bias a copy, and batch norms what they lack.

    Return the program, whose graph, signature and dicts of constants are changed, and no tensor.
    """
    seen: set[Node] = set()
    for layer in sharing_bias(program):
        _give(program, layer, LAYERS[short(layer)][2])
    constants = unwritten_constants(program)
    for node in list(program.graph.nodes):
        op = short(node)
        if op == NORM:
            # XNNPACK doesn't take a norm whose mean is computed or given.
            if str(node.args[_MEAN]) not in constants:
                continue
            _complete(program, node)
        if op == NORM or (op == CONVOLUTION and is_one_dimensional(node)):
            weight = chain(argument(node, _WEIGHT))[-1]
            if weight in seen and weight.op == "placeholder":
                _give(program, node, _WEIGHT)
            seen.add(weight)
    program.graph_module.recompile()
    return program


def sharing_bias(program: ExportedProgram) -> list[Node]:
    """Return the layers that quantise a bias which another op reads, but with the same scales."""
    constants, known = unwritten_constants(program), dict[Node, object]()
    sharing = []
    for node in program.graph.nodes:
        if is_layer(node) and (scales := scales_of_bias(node)):
            *_, bias = parts = chain(argument(node, LAYERS[short(node)][2]))
            others = (user for user in bias.users if user not in parts)
            first = scales if all(map(_quantises_bias, others)) else None
            if bias.name in constants and known.setdefault(bias, first) != scales:
                sharing.append(node)
    return sharing


def _quantises_bias(node: Node) -> bool:
    return is_layer(node) and scales_of_bias(node) is not None


def _complete(program: ExportedProgram, norm: Node) -> None:
    """Give a batch norm the weight and the bias that it lacks, which change nothing."""
    for place, value in ((_WEIGHT, 1), (_BIAS, 0)):
        if norm.args[place] is None:
            mean: Any = norm.args[_MEAN]
            norm.update_arg(place, _input_like(program, mean, f"{norm.name}_{value}", value))


def _give(program: ExportedProgram, layer: Node, place: int | None) -> None:
    given: Any = argument(layer, place)
    *dequantisers, weight = chain(given)
    own = _input_like(program, weight, f"{weight.name}_of_{layer.name}")
    for dequantiser in reversed(dequantisers):
        with program.graph.inserting_before(layer):
            copy = program.graph.node_copy(dequantiser)
        copy.replace_input_with(dequantiser.all_input_nodes[0], own)
        own = copy
    layer.replace_input_with(given, own)


def _input_like(
    program: ExportedProgram, constant: Node, name: str, fill: int | None = None
) -> Node:
    """Make another input with the value of a constant, or with another one in all places."""
    specs = program.graph_signature.input_specs
    spec = next(spec for spec in specs if getattr(spec.arg, "name", "") == constant.name)
    value = stored_values(program)[str(spec.target)]
    data = value if fill is None else torch.full_like(value, fill)
    with program.graph.inserting_after(constant):
        made: Node = create_constant_placeholder(
            program, program.graph, name, spec.kind, data, spec.persistent
        )
    return made
