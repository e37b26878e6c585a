"""A weight of its own for each layer that XNNPACK's passes prepare by the name of the weight.

The pass for one-dimensional convolutions gives a kernel a fourth dimension, and then takes the next
convolution of this kernel for a two-dimensional one. A batch norm without a layer becomes a
convolution whose weights are named after the norm's: the next norm with this weight, or the next
one that has none, would be given those of the first. And a norm without a bias can't be fused.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, TensorArgument
from torch.fx import Node

from etdev_cpu.layers import CONVOLUTION, NORM, argument, chain, is_one_dimensional, short

_WEIGHT, _BIAS, _MEAN = 1, 2, 3


def give_own_weights(program: ExportedProgram) -> None:
    """Give each layer but the first of a weight a copy of it, and batch norms what they lack.

    Args:
        program: A partition's program; its graph, its signature and the dicts of its constants are
            changed, and no tensor.
    """
    seen: set[Node] = set()
    for node in list(program.graph.nodes):
        op = short(node) if node.op == "call_function" else ""
        if op == NORM:
            _complete(program, node)
        if op == NORM or (op == CONVOLUTION and is_one_dimensional(node)):
            *dequantisers, weight = chain(argument(node, _WEIGHT))
            if weight in seen and weight.op == "placeholder":
                _give(program, node, weight, dequantisers)
            seen.add(weight)


def _complete(program: ExportedProgram, norm: Node) -> None:
    """Give a batch norm the weight and the bias that it lacks, which change nothing."""
    for place, value in ((_WEIGHT, 1), (_BIAS, 0)):
        if norm.args[place] is None:
            norm.update_arg(place, _input_like(program, norm.args[_MEAN], value))  # type: ignore[arg-type]


def _give(program: ExportedProgram, layer: Node, weight: Node, dequantisers: list[Node]) -> None:
    own = _input_like(program, weight)
    for dequantiser in reversed(dequantisers):
        with program.graph.inserting_before(layer):
            copy = program.graph.node_copy(dequantiser)
        copy.replace_input_with(dequantiser.all_input_nodes[0], own)
        own = copy
    layer.update_arg(_WEIGHT, own)


def _input_like(program: ExportedProgram, constant: Node, fill: int | None = None) -> Node:
    """Another input with the value of a constant, or with another one in all places."""
    graph, specs = program.graph, program.graph_signature.input_specs
    names = [getattr(spec.arg, "name", "") for spec in specs]
    index = names.index(constant.name)
    with graph.inserting_after(constant):
        copy: Node = graph.placeholder(f"{constant.name}_own")
    copy.target = copy.name
    copy.meta = dict(constant.meta)
    spec = specs[index]
    target = f"{spec.target}_{copy.name}"
    own = InputSpec(spec.kind, TensorArgument(copy.name), target, spec.persistent)
    specs.insert(index + 1, own)
    values = program.state_dict if spec.target in program.state_dict else program.constants
    value = values[str(spec.target)]
    values[target] = value if fill is None else torch.full_like(value, fill)
    return copy
