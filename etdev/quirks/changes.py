"""Changes of single nodes in copies of a program, also in the graphs of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.graph.symbols import with_own_graphs


def changed(
    program: ExportedProgram, found: Iterable[Any], change: Callable[[Node, Any], None]
) -> ExportedProgram:
    """Change some nodes in a copy of a program.

    Args:
        program: The program; it is not changed.
        found: Nodes of its graph or of the graphs of control flow, or values with a `node`.
        change: Given a copied node and what was found; calls that it makes come before the node.
    """
    copied = with_own_graphs(program)
    before, after = _modules(program), _modules(copied)
    copies: dict[Node, Node] = {}
    # A branch that nothing calls any more is not copied.
    for name, module in after.items():
        copies.update(zip(before[name].graph.nodes, module.graph.nodes, strict=True))
    for each in found:
        if node := copies.get(getattr(each, "node", each)):
            with node.graph.inserting_before(node):
                change(node, each)
    for module in after.values():
        module.recompile()
    return copied


def _modules(program: ExportedProgram) -> dict[str, GraphModule]:
    named = program.graph_module.named_modules()
    return {name: module for name, module in named if isinstance(module, GraphModule)}
