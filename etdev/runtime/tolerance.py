"""Tolerances: how far from eager PyTorch a .pte may be, by what it computes in.

    float64, complex128                   1e-9
    float32, complex64                    1e-4
    float16                               1e-2
    bfloat16                              3e-2
    int8 and other quantised ops          2e-2, and 1 where the output is int8 or uint8
    integers and bools                    none

Times the largest finite value of eager's output, or 1e-3 if that is more. The coarsest type of all
values of the method counts, since a result in float32 may have been bfloat16 before, and so does a
type that one of its backends rounds float32 to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

_RELATIVE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-4,
}
_QUANTISED = 2e-2
# What is relative to the largest value needs one that is not zero.
_SMALLEST = 1e-3
_NAMESPACES = ("quantized_decomposed", "torchao")


@frozen
class Tolerance:
    """What one method may be off by.

    Args:
        relative: Allowed error of floating-point outputs, times the output's largest value.
        steps: Allowed error of int8 and uint8 outputs.
    """

    relative: float
    steps: int = 0

    def allowed(self, expected: torch.Tensor) -> float:
        """The absolute error that an output may have."""
        if not (expected.is_floating_point() or expected.is_complex()):
            return self.steps if expected.dtype in (torch.int8, torch.uint8) else 0
        finite = expected[expected.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        return self.relative * max(largest, _SMALLEST)


def tolerance_of(program: ExportedProgram, rounded: Collection[str] = ()) -> Tolerance:
    """Return the tolerance of a method.

    Args:
        program: Its exported program.
        rounded: Names of the dtypes that its backends round float32 to.
    """
    nodes = list(_nodes(program.graph_module))
    quantised = any(str(node.target).partition(".")[0] in _NAMESPACES for node in nodes)
    dtypes = {value.dtype for node in nodes for value in _values(node)}
    dtypes.update(getattr(torch, name) for name in rounded)
    relative = max((_RELATIVE.get(dtype, 0.0) for dtype in dtypes), default=0.0)
    if quantised:
        relative = max(relative, _QUANTISED)
    return Tolerance(relative, int(quantised))


def _nodes(module: GraphModule) -> Iterator[Node]:
    """The nodes of a graph and of its branches."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def _values(node: Node) -> Iterable[torch.Tensor]:
    value: Any = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in values if isinstance(item, torch.Tensor)]
