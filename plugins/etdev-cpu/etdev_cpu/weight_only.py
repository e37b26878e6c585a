"""Linear layers of floats whose weight is stored in 8 bits, as XNNPACK's compiler takes them.

XNNPACK computes them in float32 with the weight as it is stored. ExecuTorch's partitioner leaves
them to float kernels, which dequantise all of the weight at each call.
"""

from __future__ import annotations

from typing import TypeVar

from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram

from etdev_cpu.quantisers import is_weight_only

P = TypeVar("P", bound=ExportedProgram)
_BIAS = 2


def add_biases(program: P) -> P:
    """Add the biases of these layers to their results: the compiler quantises a layer's own.

    Return the program, whose graph is changed.
    """
    graph = program.graph
    for layer in filter(is_weight_only, list(graph.nodes)):
        bias = layer.args[_BIAS] if len(layer.args) > _BIAS else None
        if bias is None:
            continue
        with graph.inserting_before(layer):
            product = graph.call_function(layer.target, layer.args[:_BIAS])
        product.meta = dict(layer.meta)
        # The node keeps its name, which the signature may have.
        layer.target, layer.args = exir_ops.edge.aten.add.Tensor, (product, bias)
    program.graph_module.recompile()
    return program
