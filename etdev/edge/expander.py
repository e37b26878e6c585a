"""The expander of a lowering: single ops are decomposed as the conversion does whole programs."""

from __future__ import annotations

import functools

from executorch.exir import EdgeCompileConfig
from torch._ops import OpOverload
from torch.export import ExportedProgram

from etdev.edge import kernels
from etdev.edge.checks import without_checks
from etdev.edge.formulas.corrections import CORRECTED
from etdev.edge.opset import Opset, Table, further_pieces
from etdev.graph.expand import Expander, Simplify
from etdev.schema.quirk import Apply, Stage, unchanged


def expander_of(
    config: EdgeCompileConfig, simplify: Simplify | None = None, apply: Apply = unchanged
) -> Expander:
    """An expander with etdev's formulas and corrections.

    Args:
        config: The edge conversion's; not changed.
        simplify: Takes out of pieces what computes nothing new; None leaves them as they are.
        apply: Applies the quirks of a stage.
    """
    opset = Opset(config)

    def finish(program: ExportedProgram, table: Table) -> ExportedProgram:
        return opset.decomposed(without_checks(program), table)

    def finishes(op: object) -> bool:
        return isinstance(op, OpOverload) and not opset.has(op) and bool(further_pieces(op))

    def settle(program: ExportedProgram) -> ExportedProgram:
        settled: ExportedProgram = apply(Stage.DECOMPOSED, program, "")
        return settled

    formula_of = functools.partial(kernels.formula_of, config)
    return Expander(config, formula_of, simplify, CORRECTED, finish, finishes, settle)
