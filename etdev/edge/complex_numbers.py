"""Complex numbers, of which ExecuTorch's conversion and kernels know little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules
from etdev.graph.source import ops_with_lines


def name_complex(programs: Iterable[ExportedProgram], error: Exception) -> None:
    """Say which ops read or return complex numbers, if a conversion failed on a program with some.

    Args:
        programs: ATen programs.
        error: What ExecuTorch raised.

    Raises:
        LoweringError: There are such ops.
    """
    nodes = [node for program in programs for node in _complex(program.graph_module)]
    if nodes:
        raise LoweringError(
            "edge conversion",
            "ExecuTorch can't convert complex numbers, which "
            f"{ops_with_lines(nodes)} read or return",
            "compute with real and imaginary parts, as torch.view_as_real gives them",
        ) from error


def is_complex(node: Node) -> bool:
    """Whether a node reads or returns complex numbers."""
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    tensors = (v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor))
    return node.op == "call_function" and any(tensor.is_complex() for tensor in tensors)


def _complex(root: GraphModule) -> Iterator[Node]:
    for module in graph_modules(root):
        yield from filter(is_complex, module.graph.nodes)
