"""The nodes that an error of ExecuTorch's conversion names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import LoweringError, first_line
from etdev.graph.nodes import op_name
from etdev.graph.source import where

# torch's interpreter adds it to what it comes across.
_NODE = re.compile(r"^While executing %(\w+) :", re.MULTILINE)


def nodes_named(program: ExportedProgram, error: Exception) -> Iterator[Node]:
    """Yield the nodes of a program that were run when a conversion failed."""
    names = set(_NODE.findall(str(error)))
    for node in program.graph.nodes:
        if node.name in names and node.op == "call_function":
            yield node


def name_node(programs: Iterable[ExportedProgram], error: Exception) -> None:
    """Say which node was run when a conversion failed.

    Raises:
        LoweringError: The error names one.
    """
    for program in programs:
        for node in nodes_named(program, error):
            raise LoweringError(
                "edge conversion",
                f"ExecuTorch failed on {op_name(node)}{where(node)} with {first_line(error)}",
                "write it with other ops; the cause is chained below",
            ) from error
