"""Maps: `torch.map` with several results becomes one for each, as ExecuTorch's emitter wants it."""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

_MAP = torch.ops.higher_order.map_impl


def settle_maps(program: ExportedProgram) -> None:
    """Map once for each result that is read, with what it needs of the body.

    Args:
        program: A delegated edge-dialect program; its graph and branches are changed.
    """
    _settle(program.graph_module)


def _settle(module: GraphModule) -> None:
    several = [node for node in _maps(module) if len(node.meta["val"]) > 1]
    for node in several:
        body: Any = node.args[0]
        for item in list(node.users):
            _give_its_own(module, node, item)
        module.graph.erase_node(node)
        if not body.users:
            module.graph.erase_node(body)
            module.delete_submodule(body.target)
    if several:
        module.recompile()
    for branch in module.children():
        if isinstance(branch, GraphModule):
            _settle(branch)


def _maps(module: GraphModule) -> list[Node]:
    return module.graph.find_nodes(op="call_function", target=_MAP)


def _give_its_own(module: GraphModule, node: Node, item: Node) -> None:
    """Let one result of a map be that of a map of its own."""
    index: Any = item.args[1]
    body: Any = node.args[0]
    name = f"{node.name}_body_{index}"
    setattr(module, name, _with_one_result(getattr(module, body.target), index))
    with module.graph.inserting_before(node):
        own = module.graph.get_attr(name)
        single = module.graph.call_function(_MAP, (own, *node.args[1:]), dict(node.kwargs))
    single.meta = {**node.meta, "val": (node.meta["val"][index],)}
    item.args = (single, 0)
    assert item.target is operator.getitem


def _with_one_result(body: GraphModule, index: int) -> GraphModule:
    """A body that returns one of its results, without what only the others need."""
    single = copy.deepcopy(body)
    output = single.graph.output_node()
    output.args = ((output.args[0][index],),)  # type: ignore[index]
    single.graph.eliminate_dead_code()
    single.recompile()
    return single
