"""The ATen ops that plugins want to see whole, node by node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import evolve
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import edge_name
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.claims import KeepWhole
from etdev.upstream.operators import OpOverload, schema_of

# Key of the mark: the node's edge op, then the plugins that want it whole. It is in `custom`, the
# metadata that torch.export preserves through decompositions.
MARK = "etdev.kept_whole"
_COPIES = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default)


class KeepWholeRequests:
    """The ops of one ATen program that the plugins want whole; they are asked in claim order."""

    def __init__(self, program: ExportedProgram, method: str, plugins: Sequence[Plugin]) -> None:
        self._graph = program.graph
        self._by_plugin: dict[str, KeepWhole] = {}
        self._of_kernels: dict[str, KeepWhole] = {}
        # Ops that stay whole in branches too, since a kernel of the runtime computes them.
        self.inside: dict[OpOverload, None] = {}
        # Ops for which plugins have other formulas than torch and ExecuTorch, with these plugins.
        self.decomposed: dict[OpOverload, list[Plugin]] = {}
        # In branches of control flow these aren't shown to plugins.
        shown: dict[OpOverload, None] = {}
        for plugin in plugins:
            request = answers.keep_whole(plugin, program, method)
            if request is None:
                continue
            ops = tuple(op for op in request.ops if not _becomes_another(op))
            self._by_plugin[plugin.name] = evolve(request, ops=ops)
            if plugin.builtin:
                self._of_kernels[plugin.name] = self._by_plugin[plugin.name]
            (self.inside if plugin.builtin else shown).update(dict.fromkeys(ops))
            for op in request.decomposes:
                self.decomposed.setdefault(op, []).append(plugin)
        # Ops that any plugin wants whole, and these with the ops that plugins have formulas for.
        self.whole = list({**shown, **self.inside})
        self.ops = list({**shown, **self.inside, **self.decomposed})

    def mark(self, node: Node) -> bool:
        """Mark a node with the plugins that want it whole; return True if it has to stay so."""
        if node.op != "call_function":
            return False
        stays = node.target in self.inside or node.target in self.decomposed
        # Branches of control flow have their own graphs, and only kernels compute in them.
        asked = self._by_plugin if node.graph is self._graph else self._of_kernels
        requesters = [name for name, request in asked.items() if request.wants(node)]
        if requesters:
            mark = {MARK: (edge_name(node.target), *requesters)}
            node.meta["custom"] = {**node.meta.get("custom", {}), **mark}
        return stays or bool(requesters)


def _becomes_another(op: OpOverload) -> bool:
    """Return True if ExecuTorch replaces an op by another one instead of decomposing it.

    It does so with copies, where it knows the order of dimensions, and with ops that return a
    number; torch can't trace `item` of some views if that is kept.
    """
    (*types,) = (str(value.type) for value in schema_of(op).returns)
    is_number = bool(types) and set(types) <= {"number", "bool", "int", "float"}
    return is_number or op in _COPIES


def requesters(node: Node) -> tuple[str, ...]:
    """Return the plugins that want an edge-dialect op whole at this place."""
    op, *names = node.meta.get("custom", {}).get(MARK, ("",))
    # Nodes that the conversion adds next to an op inherit its mark.
    return tuple(names) if op_name(node) == op else ()
