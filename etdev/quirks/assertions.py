"""Assertions about data, which no `.pte` makes."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Quirk
from etdev.schema.stages import PREPARE

_ABOUT_NUMBERS = ("aten._assert_scalar.", "aten.sym_constrain_range")
_ABOUT_TENSORS = ("aten._assert_async.", "aten._functional_assert_async.")


def assertions_on_data(program: ExportedProgram) -> list[Node]:
    """Return the assertions about values that only assertions read, also in branches."""
    return [node for each in graph_modules(program.graph_module) for node in _on_data(each.graph)]


def _on_data(graph: Graph) -> list[Node]:
    asserting: list[Node] = []
    read = set[Node]()
    for node in reversed(graph.nodes):
        if op_name(node).startswith((*_ABOUT_NUMBERS, *_ABOUT_TENSORS)):
            asserting.append(node)
        elif node.op == "placeholder" or node.is_impure() or not read.isdisjoint(node.users):
            read.add(node)
    return [node for node in reversed(asserting) if _is_on_data(node, read)]


def _is_on_data(node: Node, read: Container[Node]) -> bool:
    """Return True unless an assertion bounds numbers that something else reads."""
    if op_name(node).startswith(_ABOUT_TENSORS):
        return True
    work = [source for source in node.all_input_nodes if source not in read]
    while work:
        source = work.pop()
        # The size of a tensor is known without its data.
        if source.target is not torch.ops.aten.sym_size.int:
            if any(isinstance(n.meta.get("val"), torch.Tensor) for n in source.all_input_nodes):
                return True
            work += [each for each in source.all_input_nodes if each not in read]
    return False


def _remove(node: Node) -> None:
    """Remove a node, and what nothing else reads."""
    work = [node]
    while work:
        each = work.pop()
        sources = each.all_input_nodes
        each.graph.erase_node(each)
        work += [n for n in sources if not n.users and n.op != "placeholder" and not n.is_impure()]


ASSERTIONS_ON_DATA = Quirk(
    name="assertions-on-data",
    stage=PREPARE,
    summary="ExecuTorch removes assertions, but only after it has refused the ops that compute "
    "what they test.",
    upstream="report written 2026-11-27; executorch/exir/program/_program.py, "
    "edge_to_executorch_passes",
    find=assertions_on_data,
    fix=partial(with_changed, change=_remove),
)
QUIRKS = (ASSERTIONS_ON_DATA,)
