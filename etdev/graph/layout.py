"""Convolution weights that are stored channels last, which can be stored contiguous instead.

A backend's compiler may refuse them, and the portable kernel takes them only with an input that is
channels last, too. PyTorch computes the same either way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from executorch.exir.tensor import dim_order_from_stride
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.fx.node import map_aggregate

from etdev.graph.ops import aten_op
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import unwritten_constants
from etdev.upstream.operators import base_name
from etdev.upstream.shape_env import is_contiguous

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# The runtime takes volumes in contiguous order only.
_LAST = (0, 2, 3, 1)
_CONVOLUTIONS = ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "convolution")


def mixing_convolutions(graph: Graph) -> Iterator[Node]:
    """Yield the convolutions whose weight is channels last and whose input is not."""
    for node, given, weight in _convolutions(graph):
        if is_channels_last(weight.meta.get("val")) and not is_channels_last(given.meta.get("val")):
            yield node


def with_contiguous_weights(program: ExportedProgram) -> ExportedProgram:
    """Return an ATen program whose convolutions have contiguous weights.

    If no input of the user is channels last, all other constants become contiguous, too, so that
    every value has one layout.

    A program without such a weight, or one that depends on the layout, is returned as it is.
    """
    wanted = channels_last_weights(program)
    if not wanted:
        return program
    users = program.graph_signature.user_inputs
    inputs = program.graph.find_nodes(op="placeholder")
    if not any(n.name in users and is_channels_last(n.meta["val"]) for n in inputs):
        wanted = _stored(program)
    try:
        return traced_contiguous(program, {node.name for node in wanted})
    except (RuntimeError, ValueError):
        return program


def channels_last_weights(program: ExportedProgram) -> list[Node]:
    """Return an ATen program's constants, stored channels last, that make convolution weights."""
    sources: set[Node] = set()
    work = [weight for _, _, weight in _convolutions(program.graph)]
    while work:
        # A quantised weight is computed from integers.
        if (source := work.pop()) not in sources:
            sources.add(source)
            work += source.all_input_nodes
    return [node for node in _stored(program) if node in sources]


def _stored(program: ExportedProgram) -> list[Node]:
    """Return the constants that are stored channels last, and that the method never writes."""
    constants = unwritten_constants(program)
    inputs = program.graph.find_nodes(op="placeholder")
    return [n for n in inputs if n.name in constants and is_channels_last(n.meta.get("val"))]


def is_channels_last(value: object) -> bool:
    """Return True if a value is a tensor in the order of channels last, and in no other."""
    if not isinstance(value, torch.Tensor) or value.ndim not in _FORMATS:
        return False
    return not value.is_contiguous() and value.is_contiguous(memory_format=_FORMATS[value.ndim])


def is_known_order(order: Sequence[Any]) -> bool:
    """Return True if ExecuTorch's kernels know an order: contiguous or channels last."""
    return list(order) == sorted(order) or tuple(order) == _LAST


def has_plain_order(value: object) -> bool:
    """Return True if ExecuTorch's kernels and backends know the order of a value in memory.

    A tensor with gaps counts as contiguous if its dimensions are in order, since it will be given
    or stored without gaps. The strides of dimensions with one element may stand for another order
    than torch's, as in a channels-last image with one row and one column.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return True
    contiguous = is_contiguous(value)
    gaps = any(isinstance(s, int) and s == 0 for s in value.stride())
    # ExecuTorch would note that strides of sizes that depend on data are not 0.
    if not contiguous and (gaps or has_free_unbacked_symbols(value)):
        return False
    order = dim_order_from_stride(value.stride())
    return list(order) == sorted(order) if contiguous else is_known_order(order)


def _convolutions(graph: Graph) -> Iterator[tuple[Node, Any, Any]]:
    """Yield each convolution, its input and its weight."""
    for node in graph.nodes:
        if base_name(aten_op(node.target)) in _CONVOLUTIONS:
            yield node, node.args[0], node.args[1]


def traced_contiguous(program: ExportedProgram, names: Collection[str]) -> ExportedProgram:
    """Trace an ATen program with some inputs and constants, and all volumes, contiguous.

    Raises:
        RuntimeError | ValueError: It can't be traced so.
    """
    constants = unwritten_constants(program)
    graph = copy_graph(program.graph)
    for node in graph.nodes:
        if node.target == torch.ops.aten.view.default:
            # It would hold only in the layout from before; a reshape copies where it has to.
            node.target = torch.ops.aten.reshape.default
        node.args, node.kwargs = map_aggregate(
            (node.args, node.kwargs),
            lambda each: torch.contiguous_format if each is torch.channels_last_3d else each,
        )
        if node.name in names:
            value = node.meta["val"]
            node.meta["val"] = torch.empty_like(value, memory_format=torch.contiguous_format)
    new = rebuilt(program, graph)
    for target in {constants[name] for name in names if name in constants}:
        home = new.state_dict if target in new.state_dict else new.constants
        value = home[target]
        plain = value.detach().clone(memory_format=torch.contiguous_format)
        parameter = isinstance(value, torch.nn.Parameter)
        home[target] = torch.nn.Parameter(plain, value.requires_grad) if parameter else plain
    return new.run_decompositions({})  # type: ignore[no-any-return]
