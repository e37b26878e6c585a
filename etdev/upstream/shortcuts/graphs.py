"""Graphs without the Python code that torch writes of them.

torch writes and compiles Python code for a graph whenever a module or a program is made of it or a
pass changes it. Passes and backends walk the graph and never call that code. So their graphs have
none, and run node by node in torch's interpreter.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.fx import Graph, GraphModule, Interpreter
from torch.fx.graph import CodeGen, PythonCode

from etdev.upstream.shortcuts.switch import Shortcut

LAZY = Shortcut(
    "graph modules without code until they are called",
    ("torch.fx._lazy_graph_module._LazyGraphModule",),
)
INTERPRETED = Shortcut(
    "graphs without Python code",
    ("torch.fx.graph.CodeGen._gen_python_code", "torch.fx.Graph.set_codegen"),
)
_SOURCE = """
def forward(self, *args):
    return Interpreter(self).run(*args)
"""
_TEMPLATE = Graph().python_code("self")


class Interpreted(CodeGen):
    """A code generator that writes the same lines for every graph, which run the Interpreter.

    Passes hand a graph's code generator on to the graph they make. A deep copy of a graph has
    torch's own again.
    """

    def _gen_python_code(self, *args: Any, **kwargs: Any) -> PythonCode:
        return dataclasses.replace(_TEMPLATE, src=_SOURCE, globals={"Interpreter": Interpreter})

    def __deepcopy__(self, memo: dict[int, Any]) -> CodeGen:
        return CodeGen()


class _InterpretedGraph(Graph):
    """A graph that stays interpreted when a program is made of it.

    A program gives any other graph torch's own code generator.
    """

    @property
    def _codegen(self) -> CodeGen:
        return _CODEGEN

    @_codegen.setter
    def _codegen(self, codegen: CodeGen) -> None:
        pass


_CODEGEN = Interpreted()


def graph_module(root: dict[str, Any], graph: Graph) -> GraphModule:
    """Make a module of a graph; its code is compiled when it is first called.

    With 300 partitions that is a sixth of the loop's time.
    """
    if not LAZY.is_on:
        return GraphModule(root, graph)
    from torch.fx._lazy_graph_module import _LazyGraphModule

    module: GraphModule = _LazyGraphModule(root, graph)
    return module


def interpreted_graph() -> Graph:
    """Return an empty graph that stays interpreted when a program is made of it."""
    return _InterpretedGraph() if INTERPRETED.is_on else Graph()


def interpret(graph: Graph) -> None:
    """Let a graph be interpreted, and those that passes make of it."""
    if INTERPRETED.is_on:
        graph.set_codegen(Interpreted())
