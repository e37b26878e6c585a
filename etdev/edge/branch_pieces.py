"""The decomposition of what no kernel computes inside control flow.

Nodes in a branch can't be claimed, so that plugins are asked for their pieces before all else.
"""

from __future__ import annotations

import operator
from typing import Any

from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.decomposition import Pieces
from etdev.graph.expand import Expander
from etdev.graph.inlining import inherited
from etdev.graph.ops import aten_op


def with_branch_pieces(program: ExportedProgram, expander: Expander) -> ExportedProgram:
    """Decompose what plugins write in other ops in the branches of a program.

    Args:
        program: An edge-dialect program; its branches are changed.
        expander: Decomposes single ops.
    """
    _rewrite(program.graph_module, program, expander)
    return program


def _rewrite(module: GraphModule, program: ExportedProgram, expander: Expander) -> None:
    for _, branch, _ in get_control_flow_submodules(module):
        _rewrite(branch, program, expander)
        nodes = [node for node in branch.graph.nodes if node.op == "call_function"]
        while nodes:
            node = nodes.pop()
            known = aten_op(node.target) in expander.kept or expander.formula_of(node)
            if known and expander.has_pieces(node, program):
                nodes += _inline(branch, node, expander.pieces(node, program))
        branch.recompile()


def _inline(branch: GraphModule, node: Node, pieces: Pieces) -> list[Node]:
    """Put pieces in place of a node, and return those that compute something.

    Their constants become attributes of the branch.
    """
    inner = pieces.program
    constants = {**inner.constants, **inner.state_dict}
    targets = {s.arg.name: s.target for s in inner.graph_signature.input_specs if s.target}
    given = iter(node.all_input_nodes)
    inside: dict[Node, Node] = {}
    added: list[Node] = []
    results: list[Any] = []
    with branch.graph.inserting_before(node):
        for piece in inner.graph.nodes:
            if piece.op == "output":
                results = map_arg(list(piece.args[0]), inside.__getitem__)
            elif piece.op != "placeholder":
                inside[piece] = branch.graph.node_copy(piece, inside.__getitem__)
                inside[piece].meta = inherited(node, piece)
                added.append(inside[piece])
            elif piece.name in targets:
                name = f"_{node.name}__{piece.name}"
                setattr(branch, name, constants[str(targets[piece.name])])
                inside[piece] = branch.graph.get_attr(name)
                inside[piece].meta = dict(piece.meta)
            else:
                inside[piece] = next(given, node)
    if isinstance(node.meta["val"], (list, tuple)):
        for item in list(node.users):
            assert item.target is operator.getitem
            item.replace_all_uses_with(results[item.args[1]])  # type: ignore[index]
            branch.graph.erase_node(item)
    else:
        node.replace_all_uses_with(results[0])
    branch.graph.erase_node(node)
    return added
