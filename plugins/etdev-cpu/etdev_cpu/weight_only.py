"""Linear layers of floats whose weight is stored in 8 bits, as XNNPACK's compiler takes them.

XNNPACK computes them in float32 with the weight as it is stored. ExecuTorch's partitioner leaves
them to float kernels, which dequantise all of the weight at each call.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from executorch.backends.transforms.utils import create_constant_placeholder
from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from etdev_cpu.layers import short
from etdev_cpu.quantisers import is_weight_only, parameter

P = TypeVar("P", bound=ExportedProgram)
_BIAS = 2
_BY_CHANNEL = exir_ops.edge.quantized_decomposed.dequantize_per_channel.default


def prepare_weight_only(program: P) -> P:
    """Write these layers as XNNPACK's compiler can read them.

    It quantises a bias, so biases are added to the result. A scale for all of a weight becomes one
    for each output, and integers of 4 bits are integers of 8, since XNNPACK has no others.

    Return the program, whose graph and constants are changed.
    """
    graph = program.graph
    for layer in filter(is_weight_only, list(graph.nodes)):
        dequantiser: Any = layer.args[1]
        if "per_tensor" in short(dequantiser):
            layer.replace_input_with(dequantiser, _by_channel(program, dequantiser))
        else:
            arguments, least = list(dequantiser.args), parameter(dequantiser, "quant_min")
            arguments[least : least + 2] = -128, 127
            dequantiser.args = tuple(arguments)
        bias = layer.args[_BIAS] if len(layer.args) > _BIAS else None
        if bias is not None:
            with graph.inserting_before(layer):
                product = graph.call_function(layer.target, layer.args[:_BIAS])
            product.meta = dict(layer.meta)
            # The node keeps its name, which the signature may have.
            layer.target, layer.args = exir_ops.edge.aten.add.Tensor, (product, bias)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _by_channel(program: ExportedProgram, dequantiser: Node) -> Node:
    """Return a dequantiser with the one scale of another for each channel."""
    weight, scale, _, *limits = dequantiser.args  # type: Any, Any, Any, Any
    channels = weight.meta["val"].shape[0]
    values = torch.full((channels,), scale), torch.zeros(channels, dtype=torch.int64)
    with program.graph.inserting_after(weight):
        scales, zeros = (
            create_constant_placeholder(
                program,
                program.graph,
                f"{dequantiser.name}_{name}",
                InputKind.CONSTANT_TENSOR,
                value,
            )
            for name, value in zip(("scales", "zeros"), values, strict=True)
        )
    with program.graph.inserting_before(dequantiser):
        made: Node = program.graph.call_function(_BY_CHANNEL, (weight, scales, zeros, 0, *limits))
    made.meta = dict(dequantiser.meta)
    return made
