"""Folding: what is computed from constants alone is computed once, here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import define, field
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.edge.simplify.values import is_random, is_static, op_of

# A larger result stays computed: it would make the .pte larger and is not what time goes to.
MOST_BYTES = 256 << 10
MOST_BYTES_TOGETHER = 4 << 20
# Of these there may be several that hold the same.
_SMALL_BYTES = 4 << 10


@define(eq=False)
class Folding:
    """What is known of the values of a graph.

    Args:
        graph: The graph; constants that are folded are put in by `place`.
        constants: Values of its constants, by the name of their input.
        placed: What was put in, by name.
    """

    graph: Graph
    constants: Mapping[str, Any]
    placed: dict[str, torch.Tensor] = field(factory=dict)
    _values: dict[Node, torch.Tensor] = field(factory=dict)
    # The inputs of the method that each was computed from.
    _inputs: dict[Node, set[Node]] = field(factory=dict)

    def value(self, node: object) -> torch.Tensor | None:
        """The value of a node; None if it depends on inputs, state or chance."""
        if not isinstance(node, Node):
            return None
        if node in self._values:
            return self._values[node]
        value = self.constants.get(node.name) if node.op == "placeholder" else None
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        return value.detach() if plain and value.device.type == "cpu" else None  # type: ignore[union-attr]

    def evaluate(self, node: Node) -> bool:
        """Compute a node from what is known; whether that was possible.

        Args:
            node: A plain op whose inputs were evaluated before.
        """
        if not _can_be_known(node):
            return False
        values = {source: self.value(source) for source in node.all_input_nodes}
        if any(value is None for value in values.values()):
            return False
        args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        try:
            with torch.no_grad():
                result = node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception:  # It fails at run time too, or has no kernel here.
            return False
        expected = node.meta["val"]
        if type(result) is not torch.Tensor or isinstance(result, FakeTensor):
            return False
        if result.dtype != expected.dtype or result.shape != expected.shape:
            return False
        self._values[node] = result.contiguous()
        sources = node.all_input_nodes
        self._inputs[node] = {n for source in sources for n in self._inputs.get(source, {source})}
        return True

    def constant(self, value: torch.Tensor, near: Node) -> Node:
        """A node with a value of our own.

        Args:
            value: Its value.
            near: The node that needs it.
        """
        mode = near.meta["val"].fake_mode
        with self.graph.inserting_before(near):
            node = self.graph.call_function(_constant, (), name=f"{near.name}__constant")
        node.meta = {"val": _fake(value, mode)}
        self._values[node] = value
        return node

    def identity(self, node: Node) -> Any:
        """What a node has in common with others of the same value that are known to have it."""
        value = self._values.get(node)
        if value is None:
            return node
        return value.dtype, tuple(value.shape), bytes(value.reshape(-1).view(torch.uint8).numpy())

    @property
    def evaluated(self) -> list[Node]:
        """The nodes whose values are known."""
        return [node for node in self._values if node.target is not _constant]

    def place(self, first: Node) -> None:
        """Put constants in place of what was evaluated and is read by what was not.

        Args:
            first: The node before which constants stand.
        """
        read = [node for node in self._values if self._is_read(node) and not self._doubles(node)]
        together = 0
        same: dict[Any, Node] = {}
        for node in read:
            value = self._values[node]
            together += value.nbytes
            if together > MOST_BYTES_TOGETHER and node.target is not _constant:
                together -= value.nbytes
                continue
            key = self.identity(node)
            if key not in same:
                same[key] = self._placeholder(node, value, first)
            node.replace_all_uses_with(same[key])
        for node in self._values:
            if node.target is _constant:
                self.graph.erase_node(node)

    def _is_read(self, node: Node) -> bool:
        """Whether ops read a node, and only ops: results and what branches take stay computed."""
        users = list(node.users)
        ops = all(op_of(user) for user in users)
        return ops and any(user not in self._values for user in users)

    def _doubles(self, node: Node) -> bool:
        """Whether a constant would be stored beside one of its size that is still read."""
        if self._values[node].nbytes <= _SMALL_BYTES:
            return False
        return any(
            user not in self._values
            for source in self._inputs.get(node, ())
            for user in source.users
        )

    def _placeholder(self, node: Node, value: torch.Tensor, first: Node) -> Node:
        name = node.name if node.target is _constant else f"{node.name}__constant"
        with self.graph.inserting_before(first):
            placeholder = self.graph.create_node("placeholder", name, name=name)
        # The emitter looks for it under this name, which another node may have had.
        placeholder.target = placeholder.name
        placeholder.meta = {"val": _fake(value, node.meta["val"].fake_mode)}
        self.placed[placeholder.name] = value
        return placeholder


def _constant() -> None:
    """Stands for a constant until the graph is done."""


def _fake(value: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        return torch.empty(value.shape, dtype=value.dtype)


def _can_be_known(node: Node) -> bool:
    value = node.meta["val"]
    if not is_static(value) or not value.is_contiguous() or value.device.type != "cpu":
        return False
    if value.numel() * value.element_size() > MOST_BYTES or not value.numel():
        return False
    return not is_random(node)
