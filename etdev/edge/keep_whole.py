"""Wishes: which ATen ops the plugins want to see whole, node by node."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import edge_name
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.claims import KeepWhole

# The node's edge op, then who wants it whole.
# `custom` is the node metadata that torch.export hands through decompositions.
_MARK = "etdev.kept_whole"


@define(eq=False)
class Wishes:
    """What the plugins want kept whole in one program.

    Args:
        program: ATen-dialect program of one method.
        method: Its name.
        plugins: Who is asked, in claim order.
    """

    program: ExportedProgram
    method: str
    plugins: Sequence[Plugin]
    by_plugin: dict[str, KeepWhole] = field(init=False)

    def __attrs_post_init__(self) -> None:
        wishes = {
            plugin.name: answers.keep_whole(plugin, self.program, self.method)
            for plugin in self.plugins
        }
        self.by_plugin = {name: wish for name, wish in wishes.items() if wish}

    @property
    def ops(self) -> list[OpOverload]:
        """The ops of all wishes, each once."""
        return list(dict.fromkeys(op for wish in self.by_plugin.values() for op in wish.ops))

    def mark(self, node: Node) -> bool:
        """Mark a node with those who want it whole; False if nobody does."""
        # Branches of control flow have graphs of their own and nobody claims in them.
        if node.op != "call_function" or node.graph is not self.program.graph:
            return False
        wishers = [name for name, wish in self.by_plugin.items() if wish.wants(node)]
        if wishers:
            mark = {_MARK: (edge_name(node.target), *wishers)}
            node.meta["custom"] = {**node.meta.get("custom", {}), **mark}
        return bool(wishers)


def wishers(node: Node) -> tuple[str, ...]:
    """The plugins that want an edge-dialect op whole at this place."""
    op, *names = node.meta.get("custom", {}).get(_MARK, ("",))
    # Nodes that the conversion puts beside an op inherit its mark.
    return tuple(names) if op_name(node) == op else ()


def take_marks(program: ExportedProgram) -> dict[str, tuple[str, ...]]:
    """Ops that were kept whole, with the plugins that wanted them; removes the marks."""
    found = {}
    for node in program.graph.nodes:
        if names := wishers(node):
            found[node.name] = names
        if _MARK in node.meta.get("custom", {}):
            rest = {key: value for key, value in node.meta["custom"].items() if key != _MARK}
            node.meta["custom"] = rest
    return found
