"""Empties: sizes that may be 0, for which XNNPACK's runtime fails where portable kernels don't."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev_cpu.layers import CONVOLUTION, NORM
from etdev_cpu.quantisers import Reason, short

# Seen in ExecuTorch's runtime; all others take tensors without elements.
_FAILING = frozenset(
    (
        *(CONVOLUTION, NORM, "bmm"),
        *("avg_pool2d", "max_pool2d", "max_pool2d_with_indices"),
    )
)


def empty_problem(program: ExportedProgram, node: Node) -> Reason | None:
    """Why a node fails where a dynamic size of the program's inputs is 0; or None.

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
    """What a user should know of the first such node among some; or None."""
    nodes = (node for node in program.graph.nodes if node.name in names)
    problems = (problem for node in nodes if (problem := empty_problem(program, node)))
    first = next(problems, None)
    return first and f'{first[1]}; export it with Dim(..., min=1), or write empty = "exact"'


def _empty(program: ExportedProgram, sizes: Collection[Any]) -> Iterator[Any]:
    """The symbols that may be 0, and with which one of some sizes is 0."""
    known = program.range_constraints
    for size in sizes:
        if not isinstance(size, torch.SymInt):
            continue
        expression = size.node.expr
        zeros = {s: 0 for s in expression.free_symbols if s in known and known[s].lower <= 0}
        if zeros and expression.subs(zeros) == 0:
            yield from zeros


def _input_size(program: ExportedProgram, symbol: Any) -> str | None:
    """Where a symbol is a size of an input: `size 0 of input 'x'`."""
    for node in program.graph.find_nodes(op="placeholder"):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                return f"size {dim} of input {node.name!r}"
    return None
