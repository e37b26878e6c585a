"""Products with a weight that a model transposes, written as linear layers.

A weight that is transposed before `mm` is transposed at each call, and backends that pack weights
don't take the product. As a linear layer it is read as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.inlining import call
from etdev.graph.nodes import CALLS, NO_CALL
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import unwritten_constants

aten = torch.ops.aten
LINEAR, _VIEW = aten.linear.default, aten.view.default
# Positions of the activation and the weight among the arguments.
_PRODUCTS: Mapping[Any, int] = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1}
_VIEWS: Mapping[Any, Callable[..., Any]] = {
    aten.permute.default: lambda x, order: x.permute(order),
    aten.unsqueeze.default: lambda x, dim: x.unsqueeze(dim),
    # Unlike `reshape`, it fails where the elements would have to be copied.
    _VIEW: lambda x, sizes: x.view(sizes),
}


def with_linear_layers(program: ExportedProgram) -> ExportedProgram:
    """Write products with a transposed weight as `linear`, in a decomposed ATen program."""
    constants = unwritten_constants(program)
    graph = copy_graph(program.graph)
    products = [node for node in graph.nodes if node.target in _PRODUCTS]
    if not [node for node in products if _rewrite(node, constants)]:
        return program
    for node in reversed(list(graph.nodes)):
        if node.target in (*_VIEWS, *_PRODUCTS) and not node.users:
            graph.erase_node(node)
    return rebuilt(program, graph)


def _rewrite(product: Node, constants: Mapping[str, str]) -> bool:
    """Replace a product by a linear layer, if that reads the weight as it is stored."""
    first = _PRODUCTS[product.target]
    source, operand = product.args[first : first + 2]  # type: Any, Any
    weight = _stored(operand, constants)
    value = product.meta["val"]
    if weight is None or not value.is_floating_point() or not _is_bias(product, weight):
        return False
    if not weight.meta["val"].is_floating_point():
        # Backends know by this op that they may keep the integers.
        as_floats = torch.ops.quantized_decomposed.dequantize_per_tensor.default
        with product.graph.inserting_before(product):
            weight = call(product, as_floats, weight, 1.0, 0, -128, 127, torch.int8)
    biases = product.args[:first]
    outputs = int(weight.meta["val"].shape[0])
    before = _unviewed(source, -1)
    after = [_unviewed_user(user, before, outputs) for user in product.users] if before else []
    if before is not None and after and all(after):
        # The views around it flatten what a linear layer takes as it is.
        for user in list(product.users):
            user.replace_all_uses_with(
                _call(user, LINEAR, (before, weight, *biases), user.meta["val"])
            )
    elif value.dim() == 2:
        product.replace_all_uses_with(_call(product, LINEAR, (source, weight, *biases), value))
    else:
        inputs = int(weight.meta["val"].shape[1])
        flat = _call(product, _VIEW, (source, [-1, inputs]), source.meta["val"][0])
        layer = _call(product, LINEAR, (flat, weight), value[0])
        product.replace_all_uses_with(_call(product, _VIEW, (layer, [1, -1, outputs]), value))
    return True


def _stored(operand: object, constants: Mapping[str, str]) -> Node | None:
    """Return the weight of (out, in) that an operand of (in, out) transposes, maybe in steps.

    It may be of integers, which the steps make floats.
    """
    steps, source = list[Node](), operand  # type: list[Node], Any
    while isinstance(source, Node) and (source.target in _VIEWS or _is_cast(source)):
        steps += [] if _is_cast(source) else [source]
        source = source.args[0]
    if not steps or not isinstance(source, Node) or source.name not in constants:
        return None
    weight, value = source.meta["val"], steps[0].meta["val"]
    if weight.dim() != 2 or not weight.is_contiguous() or value.numel() != weight.numel():
        return None
    # Its strides tell how it reads the weight.
    seen: Any = torch.empty(weight.shape, device="meta")
    try:
        for step in reversed(steps):
            seen = _VIEWS[step.target](seen, *step.args[1:])
    except (RuntimeError, TypeError):
        return None
    if seen.dim() == 3 and seen.shape[0] == 1:
        seen = seen[0]
    transposed = weight.t()
    same = (seen.shape, seen.stride()) == (transposed.shape, transposed.stride())
    return source if same and 1 not in weight.shape else None


def _is_cast(node: Node) -> bool:
    """Return True if a node makes float32 of int8, as the products of torchao's weights do."""
    if node.target != aten._to_copy.default or node.kwargs.keys() != {"dtype"}:
        return False
    source: Any = node.args[0]
    return (source.meta["val"].dtype, node.kwargs["dtype"]) == (torch.int8, torch.float32)


def _is_bias(product: Node, weight: Node) -> bool:
    """Return True if a product adds nothing, or a bias to each row."""
    if product.target != aten.addmm.default:
        return product.target != aten.bmm.default or product.meta["val"].shape[0] == 1
    bias: Any = product.args[0]
    unweighted = all(factor == 1 for factor in product.kwargs.values())
    return unweighted and tuple(bias.meta["val"].shape) == (weight.meta["val"].shape[0],)


def _unviewed(source: object, last: int) -> Node | None:
    """Return the tensor that a view flattens to rows, whose last size it keeps."""
    if not isinstance(source, Node) or source.target != _VIEW:
        return None
    before: Any = source.args[0]
    sizes, rows = before.meta["val"].shape, source.meta["val"].shape
    return before if len(sizes) > 2 and str(sizes[last]) == str(rows[last]) else None


def _unviewed_user(user: Node, before: Node | None, outputs: int) -> bool:
    """Return True if a reader of a product gives it the leading sizes of a tensor again."""
    if before is None or user.target != _VIEW:
        return False
    wanted = (*before.meta["val"].shape[:-1], outputs)
    return list(map(str, user.meta["val"].shape)) == list(map(str, wanted))


def _call(near: Node, op: Any, args: tuple[Any, ...], value: Any) -> Node:
    """Return a new call with the place in the model of the one that it replaces."""
    graph: Graph = near.graph
    with graph.inserting_before(near):
        node = graph.call_function(op, args)
    # Backends would match it with the rest of another call.
    node.meta = {**near.meta, "val": value, CALLS: NO_CALL}
    return node
