"""Graphs that are interpreted: Python code for a partition is rarely run and dear to write."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.fx import Graph, Interpreter
from torch.fx.graph import PythonCode


class InterpretedGraph(Graph):
    """A graph whose module runs it node by node.

    torch writes and compiles Python code for a graph whenever a module or a program is made of it,
    which is most of the work of splitting a method into many partitions. Backends walk the graph
    and never call it. Copies of it are ordinary graphs.
    """

    def python_code(self, *args: Any, **kwargs: Any) -> PythonCode:
        """Code that runs the graph in torch.fx's Interpreter."""
        return dataclasses.replace(_TEMPLATE, src=_SOURCE, globals={"Interpreter": Interpreter})


_SOURCE = """
def forward(self, *args):
    return Interpreter(self).run(*args)
"""
_TEMPLATE = Graph().python_code("self")
