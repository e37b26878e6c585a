"""The precision that each node computes in, and the nodes that convert values to another one."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from attrs import define, field
from torch.fx import Node

from etdev.graph.method import MethodGraph
from etdev.schema.dtypes import dtype_name
from etdev.upstream.operators import base_name, overload_of, schema_of

_QUANTISE, _DEQUANTISE = "quantize_", "dequantize_"
_KINDS = (_QUANTISE, _DEQUANTISE, "choose_qparams")
_CASTS = ("_to_copy", "_to_dim_order_copy")
# Tables of words in integers, whose kernels compute with them.
_TABLES = {"embedding_byte": "int8w", "embedding_4bit": "int4w", "embedding_2bit": "int2w"}
# Wider integers are indices, or a bias in 32 bits.
_WIDEST = 16


def converted(node: Node) -> tuple[str, ...]:
    """Return the dtypes before and after a node that quantises, dequantises or casts its input.

    Return nothing for other nodes.
    """
    kind, sources = _kind(node), node.all_input_nodes
    if not kind and base_name(node.target) not in _CASTS:
        return ()
    before, after = _dtype(*sources), _dtype(node)
    if kind and (bits := _bits(node)):
        return (f"int{bits}", after) if kind == _DEQUANTISE else (before, f"int{bits}")
    numbers = all(_is_real(n) or _bits(n) for n in (node, *sources))
    return (before, after) if numbers and before != after else ()


def precisions(graph: MethodGraph, homes: Mapping[str, str]) -> dict[str, str]:
    """Return the precision of each op by its name; empty for delegates and for numbers.

    A node whose partition has the dequantisers of what it reads is quantised: `int8` with fixed
    scales, `8da4w` if each run chooses those of the input, `int8w` if only the weight is stored in
    integers. Without a weight, its result has to be quantised there, too. All other nodes have the
    dtype that they compute in.

    Args:
        graph: The method.
        homes: The partition of each node in one.
    """
    patterns = _Patterns(graph, homes).precisions
    nodes = (graph.node(name) for name in graph.ops)
    return {
        node.name: "" if node.name in graph.foreign else patterns.get(node) or _alone(node)
        for node in nodes
    }


@define(eq=False)
class _Patterns:
    """The quantised patterns of a method; `precisions` has each of their nodes."""

    graph: MethodGraph
    homes: Mapping[str, str]
    precisions: dict[Node, str] = field(factory=dict)
    # Values of constants alone.
    _fixed: set[Node] = field(factory=set)
    # The bits of the integers that a value comes from, and True if each run chooses their scale.
    _stored: dict[Node, tuple[int, bool]] = field(factory=dict)
    # Nodes whose result goes to quantisers of their partition.
    _requantised: set[Node] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        nodes = self.graph.program.graph.nodes
        if not any(map(_bits, nodes)):
            return
        for node in reversed(nodes):
            readers = self._near(node, node.users)
            if len(readers) == len(node.users) > 0 and all(map(self._quantises, readers)):
                self._requantised.add(node)
        for node in nodes:
            self._look(node)
        # A node that brings integers to a layer has the precision of the layer.
        for node in reversed(nodes):
            if _kind(node) or node in self._fixed or node.target is operator.getitem:
                near = (self.precisions.get(n) for n in self._near(node, node.users))
                if own := next(filter(None, near), ""):
                    self.precisions[node] = own

    def _quantises(self, node: Node) -> bool:
        return _kind(node) == _QUANTISE or node in self._requantised

    def _near(self, node: Node, others: Iterable[Node]) -> list[Node]:
        """Return those of some nodes that are in the partition of a node."""
        home = self.homes.get(node.name)
        return [n for n in others if home and self.homes.get(n.name) == home]

    def _look(self, node: Node) -> None:
        """Note the integers that a node's value comes from, and its precision in a pattern."""
        reads, constant = node.all_input_nodes, self.graph.constants.get(node.name)
        if not constant.mutated if constant else reads and self._fixed.issuperset(reads):
            self._fixed.add(node)
        near = [n for n in reads if n.op == "placeholder"] + self._near(node, reads)
        known = {n: self._stored[n] for n in near if n in self._stored}
        reals = [n for n in reads if _is_real(n)]
        inputs = [n for n in reals if n not in self._fixed]
        if (constant or _kind(node) == _DEQUANTISE) and (bits := _bits(node)):
            # A scale that is an input is computed.
            self._stored[node] = bits, bool(inputs)
        elif node in self._fixed and known:
            self._stored[node] = min(known.values())
        elif known and not _kind(node):
            weights = [known[n][0] for n in reals if n in known and n in self._fixed]
            # A weight in floats makes a layer of floats.
            whole = known.keys() >= {*inputs} and (weights or reals == inputs)
            bits, dynamic = max((known[n] for n in inputs if whole), default=(0, False))
            if bits and (node in self._requantised or not weights):
                self._stored[node] = bits, dynamic
            if weights or node in self._requantised:
                self.precisions[node] = _scheme(bits, dynamic, min(weights, default=0))


def _scheme(bits: int, dynamic: bool, weight: int) -> str:
    """Return the precision of a layer, given the bits of its inputs and weight; 0 for floats."""
    if dynamic or (bits and weight and bits != weight):
        return f"{bits}{'da' if dynamic else 'a'}{weight}w" if weight else ""
    return f"int{bits}" if bits else f"int{weight}w" if weight else ""


def _alone(node: Node) -> str:
    """Return the precision of a node that is in no pattern."""
    bits = _bits(node) if _kind(node) else 0
    own = f"int{bits}" if bits else _TABLES.get(base_name(node.target), "")
    return own or _dtype(node, *node.all_input_nodes)


def _kind(node: Node) -> str:
    return _kind_of(node.target) if node.op == "call_function" else ""


# Asked about every node, more than once.
@cache
def _kind_of(target: Any) -> str:
    """Return `quantize_`, `dequantize_` or `choose_qparams` if that is how an op begins."""
    name = base_name(target)
    return next((kind for kind in _KINDS if name.startswith(kind)), "")


def _bits(node: Node) -> int:
    """Return the bits of the small integers that a quantiser makes or reads, or that a value is.

    Return 0 for other values.
    """
    kind = _kind(node)
    op = overload_of(node.target) if kind else None
    names = [argument.name for argument in schema_of(op).arguments] if op else []
    given = dict(zip(names, node.args, strict=False))
    least, most = given.get("quant_min"), given.get("quant_max")
    if isinstance(least, int) and isinstance(most, int):
        return (most - least).bit_length()
    dtypes = _dtypes(node, *(node.all_input_nodes if kind else ()))
    widths = [8 * d.itemsize for d in dtypes if not d.is_floating_point and d != torch.bool]
    return min((width for width in widths if width <= _WIDEST), default=0)


def _dtypes(*nodes: Node) -> list[torch.dtype]:
    values = [node.meta.get("val") for node in nodes]
    several = (value if isinstance(value, (tuple, list)) else (value,) for value in values)
    return [value.dtype for each in several for value in each if isinstance(value, torch.Tensor)]


def _is_real(node: Node) -> bool:
    """Return True if a node has floating-point or complex values."""
    return any(map(_is_fraction, _dtypes(node)))


def _dtype(*nodes: Node) -> str:
    """Return the first floating-point dtype of some nodes, else the first; empty without any."""
    dtypes = _dtypes(*nodes)
    return next(map(dtype_name, (*filter(_is_fraction, dtypes), *dtypes)), "")


def _is_fraction(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
