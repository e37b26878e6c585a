"""Causes: what of a model ExecuTorch's conversion failed on."""

from __future__ import annotations

import re
from collections.abc import Collection

from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from etdev.edge.branches import name_writes
from etdev.edge.complex_numbers import name_complex
from etdev.edge.positions import unknown
from etdev.errors import LoweringError, first_line
from etdev.graph.nodes import op_name
from etdev.graph.source import where

# torch's interpreter adds it to what it comes across.
_NODE = re.compile(r"^While executing %(\w+) :", re.MULTILINE)


def name_cause(programs: Collection[ExportedProgram], error: Exception) -> None:
    """Say which ops a conversion failed on, if it is known.

    Args:
        programs: ATen programs.
        error: What ExecuTorch raised.

    Raises:
        LoweringError: It is.
    """
    name_writes(programs, error)
    name_complex(programs, error)
    _name_node(programs, error)


def _name_node(programs: Collection[ExportedProgram], error: Exception) -> None:
    """Say which node was run when a conversion failed."""
    names = set(_NODE.findall(str(error)))
    for program in programs:
        for node in program.graph.nodes:
            if node.name in names and node.op == "call_function":
                if isinstance(error, GuardOnDataDependentSymNode):
                    raise unknown(node, error.cond) from error
                raise LoweringError(
                    "edge conversion",
                    f"ExecuTorch failed on {op_name(node)}{where(node)} with {first_line(error)}",
                    "write it with other ops; the cause is chained below",
                ) from error
