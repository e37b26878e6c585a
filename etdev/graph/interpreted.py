"""Graphs that run node by node in torch's interpreter, without Python code of their own.

torch writes and compiles Python code for a graph whenever a module or a program is made of it or a
pass changes it. Passes and backends walk the graph and never call that code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, Interpreter
from torch.fx.graph import CodeGen, PythonCode

from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.upstream.edge import with_parts

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


class InterpretedGraph(Graph):
    """A graph that stays interpreted when a program is made of it.

    A program gives any other graph torch's own code generator.
    """

    @property
    def _codegen(self) -> CodeGen:
        return INTERPRETED

    @_codegen.setter
    def _codegen(self, codegen: CodeGen) -> None:
        pass


INTERPRETED = Interpreted()


def interpreted_copy(program: ExportedProgram) -> ExportedProgram:
    """Return a program for a compiler that walks and changes graphs and never runs them.

    Weights have the names of their inputs if one of them has a name that Python can't write, such
    as `0.weight`: passes name new inputs after weights, and torch.fx would change those names.
    ExecuTorch 1.4 then fails to fuse a batch norm, for one.

    The copy has the same weights, in dicts and a signature of its own.
    """
    graph, signature = copy_graph(program.graph, InterpretedGraph()), program.graph_signature
    names = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    if all(target.replace(".", "_").isidentifier() for target in names):
        names = {}
    specs = [
        [dataclasses.replace(spec, target=names.get(spec.target, spec.target)) for spec in side]
        for side in (signature.input_specs, signature.output_specs)
    ]
    parts = {"state_dict": program.state_dict, "constants": program.constants}
    own = {
        part: {names.get(name, name): value for name, value in values.items()}
        for part, values in parts.items()
    }
    return rebuilt(with_parts(program, **own), graph, ExportGraphSignature(*specs))
