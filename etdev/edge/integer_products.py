"""Products of 8-bit integers with a constant weight, as exact linear layers of floats.

Quantised models multiply integers by `_int_mm`. No kernel has it, and the weight would be converted
to 32 bits and transposed at each call. Float32 is exact for sums below 2 ** 24, and backends have
float layers whose weight is stored in 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.inlining import call
from etdev.graph.rebuild import constant_input, copy_graph, rebuilt
from etdev.graph.signature import constant_values, first_input

aten = torch.ops.aten
_PRODUCT, _TURN, _SUM = aten._int_mm.default, aten.permute.default, aten.sum.dim_IntList
# The largest of the integers that are multiplied by the weight.
_LARGEST = {torch.uint8: 255, torch.int8: 128}
# Sums up to here are exact in float32, in any order.
_EXACT = 1 << 24


def with_float_products(program: ExportedProgram) -> ExportedProgram:
    """Write products of integers as linear layers, in a decomposed ATen program."""
    if not any(node.target == _PRODUCT for node in program.graph.nodes):
        return program
    graph = copy_graph(program.graph)
    products = _Products(graph, first_input(graph, program), constant_values(program))
    for node in list(graph.nodes):
        if node.target == _PRODUCT:
            products.rewrite(node)
    if not products.read:
        return program
    for node in reversed(list(graph.nodes)):
        if node.target in (_PRODUCT, _TURN, _SUM) and not node.users:
            graph.erase_node(node)
    for node in graph.find_nodes(op="placeholder"):
        if node.name in products.read and not node.users:
            graph.erase_node(node)
    return rebuilt(program, graph, constants=products.made)


@define(eq=False)
class _Products:
    """The products of one graph.

    Args:
        graph: The graph, which is changed.
        first: The first node after its constants.
        known: The values of its constants, by name.
        made: New constants, by name.
        nodes: Their nodes.
        read: The names of the weights that were read.
    """

    graph: Graph
    first: Node
    known: Mapping[str, Any]
    made: dict[str, torch.Tensor] = field(factory=dict)
    nodes: dict[str, Node] = field(factory=dict)
    read: set[str] = field(factory=set)

    def rewrite(self, product: Node) -> None:
        """Replace a product with a transposed constant, and the sums of that constant."""
        source, turned = product.args[:2]  # type: Any, Any
        if turned.target != _TURN or list(turned.args[1]) != [1, 0]:
            return
        weight = turned.args[0]
        value, largest = self.known.get(weight.name), _LARGEST.get(source.meta["val"].dtype)
        if value is None or largest is None or value.dtype != torch.int8:
            return
        parts = self._parts(weight, value, largest)
        with self.graph.inserting_before(product):
            product.replace_all_uses_with(_exact(product, source, parts))
        self.read.add(weight.name)
        for user in [user for user in turned.users if user.target == _SUM]:
            total = user.target(value.permute(turned.args[1]), *user.args[1:], **user.kwargs)
            user.replace_all_uses_with(self._constant(user, f"{user.name}_of_weight", total))

    def _parts(self, weight: Node, value: torch.Tensor, largest: int) -> list[Node]:
        """Return a weight in parts of its inputs, each small enough for exact sums."""
        number = max(1, math.ceil(_greatest(value) * largest / _EXACT))
        parts = value.detach().tensor_split(number, 1)
        while any(_greatest(part) * largest > _EXACT for part in parts):
            parts = value.detach().tensor_split(len(parts) + 1, 1)
        if len(parts) == 1:
            return [weight]
        return [
            self._constant(weight, f"{weight.name}_part{index}", part)
            for index, part in enumerate(parts)
        ]

    def _constant(self, like: Node, name: str, value: torch.Tensor) -> Node:
        """Return the node of a new constant, in the fake mode of another one."""
        if name not in self.nodes:
            self.made[name] = value.contiguous()
            with self.graph.inserting_before(self.first):
                self.nodes[name] = constant_input(name, self.made[name], like)
        return self.nodes[name]


def _greatest(weight: torch.Tensor) -> int:
    """Return the largest sum of the sizes of a row's elements."""
    return int(weight.to(torch.int32).abs().sum(1).max().item())


def _exact(product: Node, source: Node, parts: list[Node]) -> Node:
    """Return the sum of the layers of some parts, in the dtype of a product."""
    floats = call(product, aten._to_copy.default, source, dtype=torch.float32)
    as_floats, total, start = torch.ops.quantized_decomposed.dequantize_per_tensor.default, None, 0
    for part in parts:
        size = int(part.meta["val"].shape[1])
        own = floats
        if len(parts) > 1:
            own = call(product, aten.slice.Tensor, floats, 1, start, start + size)
        weight = call(product, as_floats, part, 1.0, 0, -128, 127, torch.int8)
        layer = call(product, aten.linear.default, own, weight)
        result = call(product, aten._to_copy.default, layer, dtype=torch.int32)
        total = result if total is None else call(product, aten.add.Tensor, total, result)
        start += size
    assert total is not None
    return total
