"""Branches of control flow, in which plugins claim nothing.

An op that is kept whole outside is decomposed there, and plugins are asked for formulas first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule

from etdev.graph.expand import Expander
from etdev.graph.inlining import inline_in_branch
from etdev.graph.ops import aten_op


def decompose_in_branches(
    program: ExportedProgram, expander: Expander, ops: Collection[Any]
) -> ExportedProgram:
    """Decompose ops in the branches of a program, and return the program.

    Args:
        program: An edge-dialect program; its branches are changed.
        expander: Decomposes single ops, also those for which a plugin has a formula.
        ops: The ATen ops that were kept whole.
    """
    _decompose(program.graph_module, program, expander, {*ops, *expander.kept})
    return program


def _decompose(
    module: GraphModule, program: ExportedProgram, expander: Expander, ops: Collection[Any]
) -> None:
    for _, branch, _ in get_control_flow_submodules(module):
        _decompose(branch, program, expander, ops)
        # A piece may be an op that is decomposed, too.
        while pieces := {
            node: expander.pieces(node, program)
            for node in branch.graph.nodes
            if node.op == "call_function"
            and (aten_op(node.target) in ops or expander.formula_of(node))
            and expander.has_pieces(node, program)
        }:
            inline_in_branch(branch, pieces)
