"""The expander of a lowering, which decomposes single ops as the conversion does whole programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.opset import Opset, further_pieces
from etdev.graph.expand import Expander
from etdev.graph.ops import aten_op, own_pieces
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Apply, Stage, unchanged
from etdev.upstream.decompositions import Table
from etdev.upstream.edge import excepted
from etdev.upstream.operators import OpOverload


@define(eq=False)
class PluginExpander(Expander):
    """Asks plugins for decompositions, and falls back on the tables of ExecuTorch and torch.

    Args:
        plugins: Asked for decompositions, in claim order.
        apply: Applies the quirks of a stage.
    """

    plugins: Sequence[Plugin] = field(default=(), kw_only=True)
    apply: Apply = field(default=unchanged, kw_only=True)
    _opset: Opset = field(init=False)

    @_opset.default
    def _own_opset(self) -> Opset:
        return Opset(self.compile_config, self.kept)

    def formula_of(self, node: Node) -> Callable[..., Any] | None:
        """Return a plugin's decomposition of a node, or the one that its own library has."""
        op, config = aten_op(node.target), self.compile_config
        # The caller says that the runtime has a kernel for it.
        if op in excepted(config) or op in config.preserve_ops:
            return None
        return answers.decompose(self.plugins, node, config) or own_pieces(op)

    def finishes(self, op: object) -> bool:
        """Return True if an op is outside the dialect and one of torch's tables has it."""
        return isinstance(op, OpOverload) and not self._opset.has(op) and bool(further_pieces(op))

    def finish(self, program: ExportedProgram, table: Table) -> ExportedProgram:
        """Decompose ops outside the dialect by torch's tables, and apply quirks around that."""
        functional = self.apply(Stage.FUNCTIONAL, program, "")
        finished = self._opset.decomposed(functional, table)
        return self.apply(Stage.DECOMPOSED, finished, "")  # type: ignore[no-any-return]
