"""Tables that constants decide: only the rows that an op reads are computed.

A table of embeddings that is quantised, or tied to a layer in another dtype, is too large to be
computed ahead of time. Its rows are computed after they are read, instead of all of it before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from etdev.edge.simplify.folding import is_static
from etdev.graph.inlining import call
from etdev.graph.nodes import op_name, upper_bound
from etdev.graph.ops import is_functional
from etdev.graph.rebuild import copy_graph, note_simplified, rebuilt, simplified_in
from etdev.graph.signature import computed_from, unwritten_constants
from etdev.graph.symbols import with_own_symbols
from etdev.upstream.operators import edge_ops, overload_of

_aten = edge_ops.edge.aten
# Where an op that reads rows has their positions.
_READERS: Mapping[str, Callable[[Any], object]] = {
    "aten.embedding.default": lambda node: node.args[1],
    "aten.index_select.default": lambda node: node.args[2] if node.args[1] == 0 else None,
}
_VIEWS = ("aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dims")
_COPIES = ("dim_order_ops._to_dim_order_copy.default", "aten._to_copy.default")
# Ops of one row after another, under a condition.
_BY_ROW: Mapping[str, Callable[[Any], bool]] = {
    "torchao.dequantize_affine.default": lambda node: bool(node.args[1][0] == 1),
    "quantized_decomposed.dequantize_per_channel.default": lambda node: bool(node.args[3] == 0),
    "quantized_decomposed.dequantize_per_channel_group.default": lambda node: True,
    "quantized_decomposed.dequantize_per_tensor.default": lambda node: True,
}


def with_read_rows(program: ExportedProgram) -> ExportedProgram:
    """Return an edge-dialect program that computes only the rows which it reads of tables."""
    computed = computed_from(program, unwritten_constants(program), inputless=False)
    if not any(_positions(node, computed) for node in program.graph.nodes):
        return program
    program = with_own_symbols(program)
    graph = copy_graph(program.graph)
    by_row = set[Node]()
    for node in graph.nodes:
        if node.name in computed and _is_by_row(node, computed, by_row):
            by_row.add(node)
    changed = [node for node in list(graph.nodes) if _compute_rows(node, computed, by_row)]
    for node in reversed(list(graph.nodes)):
        if node.name in computed and not node.users:
            graph.erase_node(node)
    if not changed:
        return program
    result = rebuilt(program, graph)
    note_simplified(result, simplified_in(program) + Counter(tables=len(changed)))
    return result


def _positions(read: Node, computed: Collection[str]) -> Node | None:
    """Return the positions of the rows that a node reads of a computed table, if they are fewer."""
    find = _READERS.get(op_name(read))
    positions, table = find(read) if find else None, read.args[0] if read.args else None
    if not isinstance(positions, Node) or not isinstance(table, Node):
        return None
    most = [upper_bound(size) or math.inf for size in positions.meta["val"].shape]
    fewer = is_static(table.meta["val"]) and math.prod(most) < table.meta["val"].shape[0]
    return positions if fewer and table.name in computed else None


def _compute_rows(read: Node, computed: Collection[str], by_row: set[Node]) -> bool:
    """Compute the rows that a node reads, in place of their table; return True if that is done."""
    positions, table = _positions(read, computed), read.args[0] if read.args else None
    if positions is None or not isinstance(table, Node) or table not in by_row:
        return False
    with read.graph.inserting_before(read):
        one = positions.meta["val"].dim() == 1
        flat = positions if one else call(read, _aten.view_copy.default, positions, [-1])
        rows = _Rows(read, flat, computed).of(table)
        if not one:
            rows = call(read, _aten.view_copy.default, rows, _sizes(read, positions))
    read.replace_all_uses_with(rows)
    read.graph.erase_node(read)
    return True


def _sizes(read: Node, positions: Node) -> list[Any]:
    """Return the sizes of the rows that a node reads, as arguments of a view."""
    sizes: list[Any] = list(read.meta["val"].shape)
    dynamic = [dim for dim, size in enumerate(sizes) if not isinstance(size, int)]
    for dim in dynamic:
        # A view finds one size by itself.
        size_of = torch.ops.aten.sym_size.int
        sizes[dim] = call(read, size_of, positions, dim) if len(dynamic) > 1 else -1
    return sizes


def _is_by_row(node: Node, computed: Collection[str], by_row: set[Node]) -> bool:
    """Return True if each row of a computed table depends on the same row of other tables alone.

    `by_row` has the tables before it that do.
    """
    op, value, name = overload_of(node.target), node.meta["val"], op_name(node)
    if op is None or not is_functional(op) or not is_static(value) or not value.dim():
        return False
    inner = _inner(node)
    if not inner or not all(s.name not in computed or s in by_row for s in inner):
        return False
    pointwise = name in (*_VIEWS, *_COPIES) or torch.Tag.pointwise in op.tags
    return _BY_ROW[name](node) if name in _BY_ROW else pointwise


def _inner(table: Node) -> list[Node]:
    """Return the inputs of a table that have a row for each of its rows."""
    value = table.meta["val"]
    # Sizes of others are held against each other from the last dimension on.
    free = op_name(table) in (*_VIEWS, *_BY_ROW)
    inputs = [(source, source.meta["val"]) for source in table.all_input_nodes]
    ranked = [(s, v) for s, v in inputs if v.dim() and (free or v.dim() == value.dim())]
    return [source for source, v in ranked if v.shape[0] == value.shape[0]]


@define(eq=False)
class _Rows:
    """Some rows of tables, each computed once."""

    read: Node
    positions: Node
    computed: Collection[str]
    _made: dict[Node, Node] = field(factory=dict)

    def of(self, table: Node) -> Node:
        """Return the rows of a table, as a node before the one that reads them."""
        if table not in self._made:
            self._made[table] = self._rows(table)
        return self._made[table]

    def _rows(self, table: Node) -> Node:
        if table.name not in self.computed:
            return call(self.read, _aten.index_select.default, table, 0, self.positions)
        inner = {source: self.of(source) for source in _inner(table)}
        if op_name(table) in _VIEWS:
            (rows,), sizes = inner.values(), table.meta["val"].shape[1:]
            return call(table, _aten.view_copy.default, rows, [-1, *sizes])
        given = (table.args, dict(table.kwargs))
        args, options = map_arg(given, lambda source: inner.get(source, source))
        return call(table, table.target, *args, **options)
