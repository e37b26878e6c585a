"""Kernels of one-dimensional convolutions: each convolution has its own where several share one.

XNNPACK's pass gives the kernel of a one-dimensional convolution a fourth dimension, and then takes
the next convolution of this kernel for a two-dimensional one.
"""

from __future__ import annotations

from collections.abc import Iterator

from executorch.backends.xnnpack.utils.quant_utils import is_dequant
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, TensorArgument
from torch.fx import Node

_RANK = 3


def give_own_kernels(program: ExportedProgram) -> None:
    """Give each one-dimensional convolution but the first of a kernel a copy of it, in place.

    Args:
        program: A partition's program; its graph, its signature and the dicts of its constants are
            changed, and no tensor.
    """
    seen: set[Node] = set()
    for convolution in list(program.graph.nodes):
        chain = list(_chain_of_kernel(convolution))
        if not chain or len(chain[-1].meta["val"].shape) != _RANK:
            continue
        if chain[-1] in seen:
            _give(program, convolution, chain)
        seen.add(chain[-1])


def _chain_of_kernel(node: Node) -> Iterator[Node]:
    """The kernel of a convolution, and what it is dequantised from; nothing of other nodes."""
    if node.op != "call_function" or node.target.__name__ != "aten.convolution.default":  # type: ignore[union-attr]
        return
    kernel = node.args[1]
    while isinstance(kernel, Node):
        yield kernel
        kernel = kernel.args[0] if is_dequant(kernel) else None


def _give(program: ExportedProgram, convolution: Node, chain: list[Node]) -> None:
    *dequantisers, kernel = chain
    if kernel.op != "placeholder":
        return
    own = _copied_input(program, kernel)
    for dequantiser in reversed(dequantisers):
        with program.graph.inserting_before(convolution):
            copy = program.graph.node_copy(dequantiser)
        copy.replace_input_with(dequantiser.all_input_nodes[0], own)
        own = copy
    convolution.replace_input_with(chain[0], own)


def _copied_input(program: ExportedProgram, kernel: Node) -> Node:
    """Another input with the value of a constant."""
    graph, specs = program.graph, program.graph_signature.input_specs
    (index,) = (i for i, spec in enumerate(specs) if getattr(spec.arg, "name", "") == kernel.name)
    with graph.inserting_after(kernel):
        copy: Node = graph.placeholder(f"{kernel.name}_own")
    copy.meta = dict(kernel.meta)
    spec = specs[index]
    target = f"{spec.target}_{copy.name}"
    own = InputSpec(spec.kind, TensorArgument(copy.name), target, spec.persistent)
    specs.insert(index + 1, own)
    values = program.state_dict if spec.target in program.state_dict else program.constants
    values[target] = values[spec.target]
    return copy
