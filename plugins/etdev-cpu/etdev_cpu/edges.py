"""NaN, infinities, huge numbers and sizes of 0, which XNNPACK treats otherwise than PyTorch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev_cpu.layers import CONVOLUTION, NORM, short
from etdev_cpu.quantisers import Reason

# Seen in ExecuTorch's runtime: exp(NaN) is 0, the square root of inf and the sigmoid of 1e30 are
# NaN, the sine of 1e10 is -4891, and so on.
_FLOAT32 = frozenset(
    (
        *("exp", "sqrt", "rsqrt", "maximum", "minimum", "avg_pool2d", "upsample_bilinear2d"),
        *("max_pool2d", "max_pool2d_with_indices", "sigmoid", "sin", "cos", "log"),
    )
)
# Products of NaN are -inf.
_FLOAT16 = _FLOAT32 | {
    *("relu", "hardtanh", "clamp", "linear", "addmm", "mm", "bmm", CONVOLUTION),
}
# Weights of a channel that XNNPACK's kernels for layers of single channels have room for. Other
# numbers are filled up with zeros, times whatever other elements lie there; from the last on in
# several passes.
_ROOMS = (1, 3, 4, 9, 25)
# All other ops take tensors without elements.
_FAILING = frozenset(
    (
        *(CONVOLUTION, NORM, "bmm"),
        *("avg_pool2d", "max_pool2d", "max_pool2d_with_indices"),
    )
)


def nan_problem(node: Node, op: str, dtypes: Collection[torch.dtype]) -> Reason | None:
    """Return why an op that reads these dtypes must not see NaN or infinities; or None."""
    if (op in _FLOAT32 and torch.float32 in dtypes) or (op in _FLOAT16 and torch.float16 in dtypes):
        return "nan", f"XNNPACK's {op} treats NaN, infinite or huge values otherwise than PyTorch"
    if op == CONVOLUTION and _fills_up(*node.args):
        return "nan", "XNNPACK's convolution of single channels spreads NaN and infinite values"
    return None


def _fills_up(source: Any, weight: Any, *others: Any) -> bool:
    """Return True if XNNPACK has no kernel for the weights of a convolution of single channels."""
    transposed, groups = others[4], others[6]
    outputs, inputs, *sizes = weight.meta["val"].shape
    single = not transposed and inputs == 1 and groups == outputs
    taps = math.prod(sizes)
    return single and taps < _ROOMS[-1] and taps not in _ROOMS


def empty_problem(program: ExportedProgram, node: Node) -> Reason | None:
    """Return why a node fails where a dynamic size of the program's inputs is 0; or None.

    The batch of a product may be, but not what it sums, nor its rows and columns.
    """
    if node.op != "call_function" or (op := short(node)) not in _FAILING:
        return None
    values = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    sizes = [size for tensor in tensors for size in tensor.shape[int(op == "bmm") :]]
    for symbol in _empty(program, sizes):
        if name := _input_size(program, symbol):
            return "empty", f"XNNPACK's {op} fails where {name} is 0, which its range allows"
    return None


def caveat(program: ExportedProgram, names: Collection[str]) -> str | None:
    """Return a warning about the first node of a partition that fails for a size of 0; or None."""
    nodes = (node for node in program.graph.nodes if node.name in names)
    problems = (problem for node in nodes if (problem := empty_problem(program, node)))
    first = next(problems, None)
    return first and f'{first[1]}; export it with Dim(..., min=1), or write empty = "exact"'


def _empty(program: ExportedProgram, sizes: Collection[Any]) -> Iterator[Any]:
    """Return the symbols that may be 0, and with which one of some sizes is 0."""
    known = program.range_constraints
    for size in sizes:
        if not isinstance(size, torch.SymInt):
            continue
        expression = size.node.expr
        zeros = {s: 0 for s in expression.free_symbols if s in known and known[s].lower <= 0}
        if zeros and expression.subs(zeros) == 0:
            yield from zeros


def _input_size(program: ExportedProgram, symbol: Any) -> str | None:
    """Return where a symbol is a size of an input: `size 0 of input 'x'`."""
    for node in program.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                return f"size {dim} of input {node.name!r}"
    return None
