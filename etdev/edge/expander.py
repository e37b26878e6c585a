"""The expander of a lowering: single ops are decomposed as the conversion does whole programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.opset import Opset, further_pieces
from etdev.graph.expand import Expander, Simplify
from etdev.graph.ops import aten_op, own_pieces
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Apply, Stage, unchanged
from etdev.upstream.decompositions import Table
from etdev.upstream.edge import excepted
from etdev.upstream.operators import OpOverload


def expander_of(
    config: EdgeCompileConfig,
    plugins: Sequence[Plugin],
    simplify: Simplify | None = None,
    apply: Apply = unchanged,
) -> Expander:
    """Return an expander that asks plugins, and falls back on the tables of ExecuTorch and torch.

    Args:
        config: The edge conversion's; not changed.
        plugins: Asked for decompositions, in claim order.
        simplify: Takes out of pieces what computes nothing new; None leaves them as they are.
        apply: Applies the quirks of a stage.
    """
    stays = {*excepted(config), *config.preserve_ops}

    def formula_of(node: Node) -> Callable[..., Any] | None:
        op = aten_op(node.target)
        # The caller says that the runtime has a kernel for it.
        if op in stays:
            return None
        return answers.decompose(plugins, node, config) or own_pieces(op)

    def finish(program: ExportedProgram, table: Table) -> ExportedProgram:
        return opset.decomposed(apply(Stage.FUNCTIONAL, program, ""), table)

    def finishes(op: object) -> bool:
        return isinstance(op, OpOverload) and not opset.has(op) and bool(further_pieces(op))

    def settle(program: ExportedProgram) -> ExportedProgram:
        settled: ExportedProgram = apply(Stage.DECOMPOSED, program, "")
        return settled

    expander = Expander(config, formula_of, simplify, finish, finishes, settle)
    opset = Opset(config, expander.kept)
    return expander
