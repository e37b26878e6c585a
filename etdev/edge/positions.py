"""Positions that depend on data, such as the row of `x[i]` for an integer tensor `i`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import (
    compute_unbacked_bindings,
    statically_known_true,
)
from torch.fx.node import map_arg

from etdev.errors import LoweringError
from etdev.graph.nodes import op_name
from etdev.graph.rebuild import with_changed
from etdev.graph.source import where
from etdev.graph.symbols import unbacked, with_own_symbols

aten = torch.ops.aten
_SELECT = aten.select.int
# How far the arguments go, after a tensor and its dimension, that may count from the end.
_LIMITS = {aten.slice.Tensor: 4, aten.narrow.default: 3}
_CHECK = aten._assert_scalar.default


def with_known_positions(program: ExportedProgram) -> ExportedProgram:
    """Look up positions that may be negative or out of range among those of their dimension.

    torch's passes ask whether a position is negative or out of range, and stop where nothing tells.
    What is looked up counts from the start, and one out of range fails, as in eager PyTorch.

    Args:
        program: An ATen program; it is not changed.
    """
    unknown = list(filter(_may_be_out, program.graph.nodes))
    # The new positions are symbols, which the caller's program must not know.
    return with_changed(with_own_symbols(program), unknown, _look_up) if unknown else program


def _look_up(graph: Graph, node: Node) -> None:
    source, dim, position = node.args
    # What is made of sizes alone has nothing else to tell that it is fake.
    with source.meta["val"].fake_mode:  # type: ignore[union-attr]
        inside = _inside(graph, node, position, _size(graph, source, dim))  # type: ignore[arg-type]
    node.args = (source, dim, inside)
    # Where its row begins is no longer a symbol of its own.
    row = _SELECT(source.meta["val"], dim, inside.meta["val"])  # type: ignore[union-attr]
    node.meta = {**_described(node), "val": row}


def refuse_unknown_slices(program: ExportedProgram) -> None:
    """Refuse slices whose limits depend on data and may be negative, which torch can't trace.

    Raises:
        LoweringError: There is one.
    """
    for node in program.graph.nodes:
        for limit in node.args[2 : _LIMITS.get(node.target, 0)]:
            value = limit.meta["val"] if isinstance(limit, Node) else limit
            if unbacked(value) and not any(map(statically_known_true, (value >= 0, value < 0))):
                raise unknown(node, value < 0)


def unknown(node: Node, condition: Any) -> LoweringError:
    """The error for an op for which torch would have to know a number that depends on data."""
    return LoweringError(
        "edge conversion",
        f"torch can't tell whether {condition} for {op_name(node)}{where(node)}, since that "
        "depends on data",
        "say what the number is where it is read, such as with torch._check(n >= 0) and "
        "torch._check(n <= x.shape[0])",
    )


def _may_be_out(node: Node) -> bool:
    """Whether a row is selected of which nothing is known, or too little."""
    if node.target is not _SELECT or not isinstance(node.args[2], Node):
        return False
    source, dim, position = node.args
    value, size = position.meta["val"], source.meta["val"].shape[dim]  # type: ignore[union-attr]
    ranges = ((value >= 0, value < size), (value < 0, value >= -size))
    return not any(all(map(statically_known_true, limits)) for limits in ranges)


def _described(node: Node) -> dict[str, Any]:
    """Where a node comes from, without the symbols that its own value has."""
    return {key: value for key, value in node.meta.items() if key != "unbacked_bindings"}


def _inside(graph: Graph, node: Node, position: Any, size: Any) -> Node:
    """A position that counts from the start, looked up by a kernel that refuses others."""

    def call(function: Any, *args: Any, **options: Any) -> Node:
        result = graph.call_function(function, args, options)
        values = map_arg((args, options), lambda argument: argument.meta["val"])
        result.meta = {**_described(node), "val": function(*values[0], **values[1])}
        return result

    places = call(aten.arange.default, size, dtype=torch.int64)
    row = call(aten.full.default, [1], position, dtype=torch.int64)
    inside = call(aten.item.default, call(aten.index.Tensor, places, [row]))
    value = inside.meta["val"]
    inside.meta["unbacked_bindings"] = compute_unbacked_bindings(value.node.shape_env, value)
    for known in (call(operator.ge, inside, 0), call(operator.lt, inside, size)):
        torch._check(known.meta["val"])  # type: ignore[no-untyped-call]
        call(_CHECK, known, "a position is in its dimension")
    return inside


def _size(graph: Graph, source: Node, dim: int) -> Any:
    """The size that a position is in: an int, or a node of it."""
    size = source.meta["val"].shape[dim]
    if isinstance(size, int):
        return size
    node = graph.call_function(aten.sym_size.int, (source, dim))
    node.meta = {**_described(source), "val": size}
    return node
