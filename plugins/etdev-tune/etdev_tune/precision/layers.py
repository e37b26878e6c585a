"""Layers of an exported program that may have a precision of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch.fx import GraphModule, Node

from etdev import Plan
from etdev.schema.ledger import together
from etdev.schema.pins import PORTABLE
from etdev_tune.precision.recipe import PLUGIN

_ATEN = torch.ops.aten
LINEAR, CONVOLUTION, EMBEDDING = "linear", "convolution", "embedding"
# Kind of layer and position of the weight, by op.
_KINDS: dict[Any, tuple[str, int]] = {
    _ATEN.linear.default: (LINEAR, 1),
    _ATEN.conv1d.default: (CONVOLUTION, 1),
    _ATEN.conv1d.padding: (CONVOLUTION, 1),
    _ATEN.conv2d.default: (CONVOLUTION, 1),
    _ATEN.conv2d.padding: (CONVOLUTION, 1),
    _ATEN.embedding.default: (EMBEDDING, 0),
}
_MARK = "quantised"
# Ops of lowered programs that multiply by the weight of a layer.
_PRODUCTS = frozenset(("linear", "convolution", "mm", "addmm", "embedding"))


@frozen
class Layer:
    """The calls that read one float32 weight.

    Args:
        name: Path of the weight without `.weight`.
        kind: `linear`, `convolution` or `embedding`.
        weight: Path of the weight.
        shape: Sizes of the weight.
        nodes: Names of the calls.
        work: Multiplications of all calls.
    """

    name: str
    kind: str
    weight: str
    shape: tuple[int, ...]
    nodes: tuple[str, ...]
    work: int

    @property
    def elements(self) -> int:
        """Number of elements of the weight."""
        return math.prod(self.shape)


def layers_of(module: GraphModule) -> dict[str, Layer]:
    """Return the layers of an unlifted program by name, in graph order."""
    calls: dict[str, list[Node]] = {}
    for node in module.graph.nodes:
        if (weight := weight_of(module, node)) is not None:
            calls.setdefault(weight, []).append(node)
    layers = {}
    for path, nodes in calls.items():
        kind, _ = _KINDS[nodes[0].target]
        name, shape = path.removesuffix(".weight"), tuple(_value(module, path).shape)
        work = sum(_work(kind, shape, node) for node in nodes)
        layers[name] = Layer(name, kind, path, shape, tuple(n.name for n in nodes), work)
    return layers


def weight_of(module: GraphModule, node: Node) -> str | None:
    """Return the path of the float32 weight that a layer's call reads; None for another node."""
    if node.target not in _KINDS:
        return None
    weight = node.args[_KINDS[node.target][1]]
    if not isinstance(weight, Node) or weight.op != "get_attr":
        return None
    value = _value(module, str(weight.target))
    return str(weight.target) if value.dtype == torch.float32 else None


def owners(module: GraphModule, layers: Mapping[str, Layer]) -> dict[str, str]:
    """Return the layer that each node goes with, by name: the last one that it depends on.

    An activation goes with the layer before it. Nodes before all layers go with the first one.
    """
    own = {node: layer.name for layer in layers.values() for node in layer.nodes}
    places = {name: index for index, name in enumerate(layers)}
    first = next(iter(layers), "")
    found: dict[str, str] = {}
    for node in module.graph.nodes:
        before = [found[read.name] for read in node.all_input_nodes if read.name in found]
        last = max(before, key=lambda name: places.get(name, -1), default=None)
        if node.name in own:
            found[node.name] = own[node.name]
        elif last is not None:
            found[node.name] = last
    return {node.name: found.get(node.name, first) for node in module.graph.nodes}


def placed(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return the owner of each module's product, and what plugins of backends said about it."""
    return {
        entry.module: (
            entry.holder,
            together(v for v in entry.verdicts if v.plugin not in (PLUGIN, PORTABLE)),
        )
        for method in plan.methods
        for entry in method.ledger
        if not _PRODUCTS.isdisjoint(entry.op.split("."))
    }


class Operation(nn.Module):
    """A layer's op with its weights."""

    def __init__(self, node: Node, tensors: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self.target = node.target
        # A node would be copied with its whole graph.
        self.rest = [None if isinstance(value, Node) else value for value in node.args]
        self.named = {"weight": _KINDS[node.target][1], "bias": 2}
        for name, place in self.named.items():
            if place in tensors:
                self.register_parameter(name, nn.Parameter(tensors[place], requires_grad=False))

    def forward(self, x: torch.Tensor) -> Any:
        """Call the op."""
        arguments = list(self.rest)
        arguments[0 if self.named["weight"] else 1] = x
        for name, place in self.named.items():
            if (value := getattr(self, name, None)) is not None:
                arguments[place] = value
        return self.target(*arguments)  # type: ignore[operator]


def replace(module: GraphModule, layer: Layer, made: Any) -> None:
    """Replace the calls of a layer by a module, which `made` makes of the float module.

    Args:
        module: An unlifted program, which is changed.
        layer: One of its layers.
        made: Function of the float module: `nn.Linear`, `nn.Embedding`, or an `Operation`.
    """
    nodes = {node.name: node for node in module.graph.nodes}
    held = set(dict(module.named_parameters())) | set(dict(module.named_buffers()))
    inside = [name for name in held if name.startswith(f"{layer.name}.")]
    alone = {f"{layer.name}.{own}" for own in ("weight", "bias")}
    # Before the first one takes the place of the weights.
    plain = [float_module(module, layer, nodes[name]) for name in layer.nodes]
    for index, node in enumerate(nodes[name] for name in layer.nodes):
        # The path of the module that was exported, where it has nothing else.
        free = index == 0 and inside and alone.issuperset(inside)
        path = layer.name if free else f"{layer.name}_{_MARK}_{index}"
        module.add_submodule(path, made(plain[index]))
        x = node.args[1 if layer.kind == EMBEDDING else 0]
        with module.graph.inserting_before(node):
            call = module.graph.call_module(path, (x,))
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        read = node.all_input_nodes
        module.graph.erase_node(node)
        for unread in read:
            if unread.op == "get_attr" and not unread.users:
                module.graph.erase_node(unread)


def float_module(module: GraphModule, layer: Layer, node: Node) -> nn.Module:
    """Return a layer's call as a module, which shares the weights."""
    tensors = {
        index: _value(module, str(argument.target)).detach()
        for index, argument in enumerate(node.args)
        if isinstance(argument, Node) and argument.op == "get_attr"
    }
    if layer.kind == LINEAR and len(node.args) == 1 + len(tensors):
        rows, columns = layer.shape
        made = nn.Linear(columns, rows, bias=2 in tensors, device="meta")
        made.weight = nn.Parameter(tensors[1], requires_grad=False)
        if 2 in tensors:
            made.bias = nn.Parameter(tensors[2], requires_grad=False)
        return made.eval()
    if layer.kind == EMBEDDING:
        return nn.Embedding.from_pretrained(tensors[0]).eval()  # type: ignore[no-untyped-call, no-any-return]
    return Operation(node, tensors).eval()


def clean(module: GraphModule) -> GraphModule:
    """Remove what no call reads, and return the module."""
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def _value(module: GraphModule, path: str) -> torch.Tensor:
    place, _, name = path.rpartition(".")
    value: torch.Tensor = getattr(module.get_submodule(place), name)
    return value


def _work(kind: str, shape: tuple[int, ...], node: Node) -> int:
    """Return the multiplications of a call, at the sizes of the example inputs."""
    value = node.meta.get("val")
    if kind == EMBEDDING or value is None:
        return 0
    sizes = [size if isinstance(size, int) else size.node.hint or 1 for size in value.shape]
    return math.prod(sizes) * math.prod(shape[1:])
