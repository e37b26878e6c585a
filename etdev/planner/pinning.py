"""The pins of one method: which pin counts for which node."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import define, field
from torch.fx import Graph, Node

from etdev.graph.nodes import module_paths, op_name
from etdev.schema.ledger import DELEGATE
from etdev.schema.pins import Pin, matches

# ExecuTorch replaces an op that it keeps whole by one of its own for a while.
_KEPT = "EDGE_DO_NOT_DECOMP."
# The step in which torch takes the nodes of an exported program for its decomposition.
_GIVEN = "ExportedProgram.module()"


@define(eq=False)
class Pinning:
    """The pins of one method, node by node, in every form of its program.

    The first pin that matches a node counts. Getitems are pinned with their op; delegates that the
    program came with can't be pinned.
    """

    pins: Sequence[Pin]
    # For each node the positions of the pins that match it, ascending.
    _matching: dict[str, list[int]] = field(factory=dict)

    def note(self, graph: Graph, pieces: Mapping[str, str] | None = None) -> None:
        """Note the nodes of a graph, and which earlier op each piece belongs to."""
        if not self.pins:
            return
        pieces = pieces or {}
        for node in graph.nodes:
            if node.op == "call_function" and node.name not in self._matching:
                self._matching[node.name] = self._matches(node, pieces.get(node.name, ""))

    def pin(self, name: str) -> Pin | None:
        """Return the pin of a node, or None."""
        matching = self._matching.get(name)
        return self.pins[matching[0]] if matching else None

    def matched(self, names: Iterable[str]) -> set[Pin]:
        """Return the pins that match some node, also where another pin counts."""
        return {self.pins[index] for name in names for index in self._matching.get(name, ())}

    def against(self, plugin: str) -> dict[str, Pin]:
        """Return the nodes that are pinned to other plugins, with their pins."""
        pinned = ((name, self.pin(name)) for name in self._matching)
        return {name: pin for name, pin in pinned if pin and pin.plugin != plugin}

    def allowed(self, name: str, plugins: Collection[str]) -> list[str]:
        """Return those of some plugins that may have a node."""
        pin = self.pin(name)
        return [plugin for plugin in plugins if pin is None or pin.plugin == plugin]

    def _matches(self, node: Node, whole: str) -> list[int]:
        if node.target is operator.getitem:
            return self._matching.get(node.all_input_nodes[0].name, [])
        op = op_name(node)
        if op == DELEGATE:
            return []
        ops, modules = {op, source_op(node) or op}, module_paths(node)
        inherited = self._matching.get(whole, [])
        return [
            index
            for index, pin in enumerate(self.pins)
            if index in inherited or matches(pin, node.name, ops, modules)
        ]


def source_op(node: Node) -> str | None:
    """Return the op of the exported program that a node comes from, or None."""
    sources = (str(source.target) for source in reversed(node.meta.get("from_node") or ()))
    return next((source for source in sources if not source.startswith(_KEPT)), None)


def source_node(node: Node) -> str:
    """Return the name of the node of the exported program that a node comes from, or nothing."""
    sources = node.meta.get("from_node")
    while sources:
        # The program may have been converted before it was given to etdev, which is further back.
        if sources[-1].pass_name == _GIVEN:
            return str(sources[-1].name)
        sources = sources[-1].from_node
    return ""
