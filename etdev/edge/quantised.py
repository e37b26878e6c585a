"""Quantised patterns that an op which only moves values separates from their quantisers.

A backend takes a quantised layer for one pattern with the ops that dequantise its inputs. A pad, a
view or a slice between them would leave all of it to float kernels. The op is quantised as its
input is, which changes no value, so that the layer reads a dequantiser again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import moves
from etdev.graph.rebuild import copy_graph, rebuilt

_NAME = "quantized_decomposed"
_QUANTISE = f"{_NAME}.quantize_per_tensor.default"
_DEQUANTISE = f"{_NAME}.dequantize_per_tensor.default"
_ACTIVATIONS = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")
# Scale, zero point, least and greatest integer, and their dtype.
_Scale = tuple[Any, ...]
# Float32 tells all integers of these apart.
_DTYPES = (torch.int8, torch.uint8, torch.int16)


def with_whole_patterns(program: ExportedProgram) -> ExportedProgram:
    """Quantise what only moves values between a quantiser and a layer of a decomposed program."""
    if not any(op_name(node) == _DEQUANTISE for node in program.graph.nodes):
        return program
    graph = copy_graph(program.graph)
    changed = _quantise_inputs(graph) + _quantise_results(graph)
    return rebuilt(program, graph) if changed else program


def _quantise_inputs(graph: Graph) -> int:
    """Give layers dequantised inputs, where ops that move values are in between; count the ops."""
    scales: dict[Node, _Scale] = {}
    for node in graph.nodes:
        if scale := _scale_of(node, scales):
            scales[node] = scale
    wanted: dict[Node, dict[Node, None]] = {}
    for node in [n for n in graph.nodes if n not in scales and _is_pattern(n)]:
        readers = [(source, node) for source in node.all_input_nodes]
        while readers:
            source, reader = readers.pop()
            if source in scales and _moves(source):
                if isinstance(source.meta["val"], torch.Tensor):
                    wanted.setdefault(source, {})[reader] = None
                readers += [(inner, source) for inner in source.all_input_nodes]
    for moved, users in wanted.items():
        with graph.inserting_after(moved):
            integers = _quantised(moved, scales[moved])
        for user in users:
            # Backends fold a dequantiser into the one op that reads it.
            with graph.inserting_after(integers):
                user.replace_input_with(moved, _dequantised(integers, moved, scales[moved]))
    return len(wanted)


def _quantise_results(graph: Graph) -> int:
    """Quantise results of layers before ops move them, where they are quantised after that."""
    changed = 0
    for moved in reversed(list(graph.nodes)):
        scales = {_scale(user) if op_name(user) == _QUANTISE else None for user in moved.users}
        sources = moved.all_input_nodes
        if not moves(moved) or len(sources) != 1 or len(scales) != 1 or None in scales:
            continue
        (scale,), (source,) = scales, sources
        if scale and len(source.users) == 1 and _is_layer(source):
            with graph.inserting_before(moved):
                integers = _quantised(source, scale)
                floats = _dequantised(integers, source, scale)
            moved.replace_input_with(source, floats)
            changed += 1
    return changed


def _scale_of(node: Node, known: dict[Node, _Scale]) -> _Scale | None:
    """Return the scale of a dequantised value, also after ops that move values with one scale."""
    if op_name(node) == _DEQUANTISE:
        source: Any = node.args[0]
        same = op_name(source) == _QUANTISE and _scale(source) == _scale(node)
        return _scale(node) if same else None
    if not _moves(node):
        return None
    scales = {known.get(source) for source in node.all_input_nodes}
    scale = scales.pop() if len(scales) == 1 else None
    return scale if scale and _is_exact(node, scale) else None


def _scale(node: Node) -> _Scale | None:
    """Return the numbers that a node quantises by; None if they are computed, or too many."""
    scale = node.args[1:6]
    fixed = len(scale) == 5 and not any(isinstance(value, Node) for value in scale)
    return scale if fixed and not node.kwargs and scale[-1] in _DTYPES else None


def _is_exact(node: Node, scale: _Scale) -> bool:
    """Return True if an integer stands for the number that a node pads with."""
    if op_name(node) != "aten.constant_pad_nd.default":
        return True
    step, zero, low, high, _ = scale
    value: Any = (*node.args, 0.0)[2]
    integer = round(value / step) + zero
    return bool(low <= integer <= high and (integer - zero) * step == value)


def _is_pattern(node: Node) -> bool:
    """Return True if a node would be a quantised layer, were its other inputs dequantised."""
    if node.op != "call_function" or _moves(node) or op_name(node).startswith(_NAME):
        return False
    return _reads_integers(node) or all(op_name(user) == _QUANTISE for user in _readers(node))


def _moves(node: Node) -> bool:
    """Return True if a node moves values, or is a part of a value that was split."""
    return moves(node) or (node.target is operator.getitem and moves(node.all_input_nodes[0]))


def _is_layer(node: Node) -> bool:
    """Return True if a value is the result of a quantised layer, maybe of its activation."""
    while moves(node) or op_name(node) in _ACTIVATIONS:
        if len(node.all_input_nodes) != 1 or len(node.users) != 1:
            return False
        (node,) = node.all_input_nodes
    return _reads_integers(node)


def _reads_integers(node: Node) -> bool:
    return any(op_name(n).startswith(f"{_NAME}.dequantize") for n in node.all_input_nodes)


def _readers(node: Node) -> Iterator[Node]:
    """Yield what reads a result, after an activation."""
    for user in node.users:
        yield from user.users if op_name(user) in _ACTIVATIONS else (user,)


def _quantised(value: Node, scale: _Scale) -> Node:
    dtype = scale[-1]
    meta = {**value.meta, "val": value.meta["val"].to(dtype)}
    return _call(value.graph, "quantize_per_tensor", (value, *scale), meta)


def _dequantised(integers: Node, like: Node, scale: _Scale) -> Node:
    return _call(integers.graph, "dequantize_per_tensor", (integers, *scale), dict(like.meta))


def _call(graph: Graph, name: str, args: Sequence[Any], meta: dict[str, Any]) -> Node:
    node = graph.call_function(getattr(torch.ops.quantized_decomposed, name).default, tuple(args))
    node.meta = meta
    return node
