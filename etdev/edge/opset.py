"""The ops of the edge dialect; any other op is decomposed further, or refused by name.

ExecuTorch takes Core ATen and its caller's exceptions, and its decompositions leave some ops
outside that. torch has more tables: those of its reference implementations and of its compiler.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from executorch.exir import EdgeCompileConfig
from executorch.exir.passes.executorch_prim_ops_registry import is_sym_op
from executorch.exir.verification.verifier import EXIRATenDialectVerifier
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import LoweringError
from etdev.graph.nodes import calls_in, ops_with_lines
from etdev.graph.ops import is_functional
from etdev.registry.keep_whole import requesters
from etdev.schema.stages import TRANSFORM
from etdev.upstream.decompositions import Table, further_pieces
from etdev.upstream.operators import OpOverload, overload_of


class Opset:
    """The ops that ExecuTorch takes: Core ATen, its caller's exceptions, and ops kept whole."""

    def __init__(self, config: EdgeCompileConfig, kept: Collection[object]) -> None:
        # It may grow later.
        self._kept = kept
        self._check = EXIRATenDialectVerifier(config).check_valid_op

    def has(self, target: object) -> bool:
        """Return True if the op of a node, in either dialect, is one of them."""
        op = overload_of(target)
        try:
            # It raises SpecViolationError, or RuntimeError for an impossible exception.
            return op in self._kept or self._check(op) is None
        except Exception:
            return False

    def decomposed(self, program: ExportedProgram, table: Table) -> ExportedProgram:
        """Decompose the other ops of an ATen program, as far as torch's tables go.

        It was decomposed with ExecuTorch's own table, whose ops stay decomposed.
        """
        result = program
        more: dict[OpOverload, Callable[..., Any]] = {}
        while known := {
            op: pieces
            for op in self._missing(result)
            if op not in more and (pieces := further_pieces(op))
        }:
            more.update(known)
            with suppress(Exception):
                result = result.run_decompositions({**table, **more})
        # A primitive has no kernel and would pass for a backend's own op. The refusal names the op
        # that the user wrote.
        return program if any(map(self._is_primitive, self._missing(result))) else result

    def _missing(self, program: ExportedProgram) -> list[OpOverload]:
        ops = dict.fromkeys(node.target for node in calls_in(program.graph_module))
        return [
            op
            for op in ops
            if isinstance(op, OpOverload)
            and (self._is_primitive(op) or (is_functional(op) and not self.has(op)))
        ]

    def _is_primitive(self, op: OpOverload) -> bool:
        return op.namespace == "prims" and op not in self._kept

    def refuse_others(self, programs: Mapping[str, ExportedProgram]) -> None:
        """Refuse edge-dialect programs with other ops, and name all of them with their lines."""
        nodes = [
            node
            for program in programs.values()
            if program.dialect == "EDGE"
            for node in calls_in(program.graph_module)
            if not (self.has(node.target) or requesters(node)) or _is_unknown_of_numbers(node)
        ]
        if nodes:
            raise LoweringError(
                TRANSFORM.name,
                f"neither ExecuTorch nor torch decomposes {ops_with_lines(nodes)} into Core ATen",
                "write them with other ops, or name those that your runtime has kernels for in "
                "EdgeCompileConfig(_core_aten_ops_exception_list=...)",
            )


def _is_unknown_of_numbers(node: Node) -> bool:
    """Return True if a node computes a number in a way that ExecuTorch can't, such as a power.

    It has ops for torch's own functions of symbolic numbers, but refuses programs that call them.
    """
    op = node.target
    if isinstance(op, types.BuiltinFunctionType):
        return op is not operator.getitem and not is_sym_op(op)
    return isinstance(op, types.FunctionType)
