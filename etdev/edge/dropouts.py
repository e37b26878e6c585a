"""Dropouts that drop nothing: they return what they were given, and torch makes a copy of it."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.edge.writes import written_through
from etdev.graph.rebuild import with_changed

_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")


def with_idle_dropouts(program: ExportedProgram) -> ExportedProgram:
    """Say of idle dropouts that they share memory with what they read, if that is written later.

    torch decomposes them into copies, in which later writes are lost.

    Args:
        program: An ATen program; it is not changed.
    """
    return with_changed(program, filter(_is_idle, written_through(program.graph)), _alias)


def _alias(graph: Graph, node: Node) -> None:
    node.target, node.args = torch.ops.aten.alias.default, node.args[:1]


def _is_idle(node: Node) -> bool:
    if getattr(node.target, "_opname", "") not in _DROPOUTS or len(node.args) != 3:
        return False
    _, probability, train = node.args
    return not (train and probability)
