"""Greatest and least values of infinities that a program writes, such as -inf where it masks.

OpenVINO starts a maximum at the least float32 and a minimum at the greatest, so that one of nothing
but infinities is that number. Infinities of the inputs are a caveat; see `edges.nan_problem`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.quirks import FaultyOps
from etdev_openvino import edges
from etdev_openvino.edges import Reason, short

# By op, the bound of a clamp that takes away the infinity at which OpenVINO is wrong.
_BOUNDS = {
    **dict.fromkeys(("amax", "max", "max_pool2d_with_indices", "max_pool3d_with_indices"), "min"),
    **dict.fromkeys(("amin", "min"), "max"),
}
_STARTS = FaultyOps(upstream=edges.SEEN, ops=tuple(_BOUNDS))
# Ops, beside those that move values, whose results are infinite where an input is.
_ARITHMETIC = ("add", "sub", "mul", "div", "sum", "mean", "cumsum")
# Among those that move values, the ones that may turn the sign of an infinity around.
_TURN = ("neg", "sub", "mul", "div", "abs")


def problem(
    node: Node,
    program: ExportedProgram,
    constants: Mapping[str, str],
    moves: Collection[str],
    known: set[tuple[Node, frozenset[str]]],
) -> Reason | None:
    """Return why the values that a node chooses from may all be infinite; or None.

    Args:
        node: A node of the program.
        program: In the edge dialect.
        constants: The targets of weights and constants, by graph input.
        moves: Ops that hand on values, or choose among them.
        known: Nodes, each with bounds, that were found to have no infinity; it adds more.
    """
    op = short(node)
    if op not in _STARTS or all(_clamps(user, {_BOUNDS[op]}) for user in _readers(node)):
        return None
    left: list[tuple[Any, frozenset[str]]] = [(node.args[0], frozenset({_BOUNDS[op]}))]
    seen = set[tuple[Node, frozenset[str]]]()
    while left:
        source, bounds = left.pop()
        if not isinstance(source, Node) or _clamps(source, bounds):
            continue
        if (source, bounds) in seen or (source, bounds) in known:
            continue
        seen.add((source, bounds))
        if source.op != "call_function" and source.name not in constants:
            continue
        if _writes_infinity(source, program, constants):
            return "infinity", f"OpenVINO's {op} of nothing but infinities is the last finite float"
        name = short(source)
        if source.target is operator.getitem or name in moves or name in _ARITHMETIC:
            bounds = frozenset(_BOUNDS.values()) if name in _TURN else bounds
            left += [(other, bounds) for other in source.all_input_nodes]
    known |= seen
    return None


def _writes_infinity(node: Node, program: ExportedProgram, constants: Mapping[str, str]) -> bool:
    """Return True for a constant with infinities, and for an op that is given one."""
    if node.op == "call_function":
        numbers = (*node.args, *node.kwargs.values())
        return any(isinstance(arg, float) and math.isinf(arg) for arg in numbers)
    target = constants[node.name]
    # Parameters are not masks.
    value: Any = program.constants.get(target)
    if value is None and node.name in program.graph_signature.inputs_to_buffers:
        value = program.state_dict.get(target)
    # A partitioner is shown fake tensors, which have no values.
    return type(value) is torch.Tensor and value.is_floating_point() and bool(value.isinf().any())


def _clamps(node: Node, bounds: Collection[str]) -> bool:
    """Return True if the results of an op are finite on the sides of some bounds."""
    op, args = short(node), (*node.args[1:], None, None)
    if op == "hardtanh":
        return True
    if op == "relu":
        return set(bounds) == {"min"}
    given = {"min": args[0], "max": args[1], **node.kwargs}
    return op == "clamp" and all(given[bound] is not None for bound in bounds)


def _readers(node: Node) -> list[Node]:
    """Return the nodes that read the first output of a node."""
    several = isinstance(node.meta["val"], (tuple, list))
    first = [user for user in node.users if user.args[1:2] == (0,)] if several else [node]
    return [user for own in first for user in own.users]
