"""Branch formulas: what portable kernels can't do is decomposed inside control flow, too.

Plugins claim nothing in a branch, so everything there is left to portable kernels.
"""

from __future__ import annotations

import operator
from typing import Any

from executorch.exir import EdgeCompileConfig
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from etdev.edge.kernels import refuse_node
from etdev.graph.decomposition import Pieces
from etdev.graph.expand import Expander
from etdev.graph.inlining import INHERITED
from etdev.graph.ops import aten_op


def with_branch_formulas(
    program: ExportedProgram, expander: Expander, config: EdgeCompileConfig
) -> ExportedProgram:
    """Decompose what kernels can't do in the branches of a program.

    Args:
        program: An edge-dialect program; its branches are changed.
        expander: Decomposes single ops.
        config: The caller's; it says which ops the runtime has a kernel for.

    Raises:
        LoweringError: There is something that kernels can't do and formulas neither.
    """
    _rewrite(program.graph_module, program, expander, config)
    return program


def _rewrite(
    module: GraphModule, program: ExportedProgram, expander: Expander, config: EdgeCompileConfig
) -> None:
    for _, branch, _ in get_control_flow_submodules(module):
        _rewrite(branch, program, expander, config)
        # With the ops whose formulas they are part of, which may have those ops on purpose.
        nodes: list[tuple[Node, frozenset[Any]]] = [(n, frozenset()) for n in branch.graph.nodes]
        while nodes:
            node, inside = nodes.pop()
            op = aten_op(node.target)
            if op in inside:
                continue
            if pieces := expander.formula_pieces(node, program):
                nodes += [(piece, inside | {op}) for piece in _inline(branch, node, pieces)]
            else:
                refuse_node(node, config)
        branch.recompile()


def _inline(branch: GraphModule, node: Node, pieces: Pieces) -> list[Node]:
    """Put pieces in place of a node, and return them.

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
                own = {key: node.meta[key] for key in INHERITED if key in node.meta}
                inside[piece].meta = {**piece.meta, **own}
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
