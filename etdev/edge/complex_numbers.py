"""Complex numbers, of which ExecuTorch's conversion and kernels know little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules, is_complex
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


def _complex(root: GraphModule) -> Iterator[Node]:
    for module in graph_modules(root):
        yield from (n for n in module.graph.nodes if n.op == "call_function" and is_complex(n))
