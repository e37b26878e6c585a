"""ExecuTorch's passes from ATen to the edge dialect, without work that changes nothing.

Each pass traces the whole program anew, for which it runs every op in fake tensors. A pass that
hands every op on as it is makes the graph it was given, and the next pass traces that graph again:
such a pass is left out.

torch also writes and compiles Python code for a graph whenever a module or a program is made of it
or a pass changes it. Passes and backends walk the graph and never call that code. So their graphs
have none, and run node by node in torch's interpreter.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from executorch.exir import EdgeCompileConfig
from executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from executorch.exir.passes.memory_format_ops_pass import MemoryFormatOpsPass
from executorch.exir.passes.replace_aten_with_edge_pass import OpReplacePass
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Interpreter, Node, Proxy
from torch.fx.graph import CodeGen, PythonCode
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from etdev.graph.nodes import graph_modules
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.upstream.edge import Pass, to_edge_program, with_parts
from etdev.upstream.operators import OpOverload

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
    own = {
        part: {names.get(name, name): value for name, value in getattr(program, part).items()}
        for part in ("state_dict", "constants")
    }
    return rebuilt(with_parts(program, **own), graph, ExportGraphSignature(*specs))


def generate(
    config: EdgeCompileConfig, program: ExportedProgram, ops: Sequence[OpOverload]
) -> ExportedProgram:
    """Convert a decomposed ATen program, which may be changed, with some ops kept whole."""
    # Not verified: custom ops outside Core ATen stay, and methods are verified together.
    # A dozen passes make a graph each, and only the last graph is made a program.
    program.graph.set_codegen(Interpreted())
    return to_edge_program(config, program, ops, only_if_needed, EdgeOpsPass)


class EdgeOpsPass(OpReplacePass, MemoryFormatOpsPass):  # type: ignore[misc]
    """ExecuTorch's passes to edge ops in one trace: the first hands each op on to the second."""


def only_if_needed(step: Pass) -> Pass:
    """Return a pass that is not run on graphs which it would leave as they are."""

    def run(module: GraphModule) -> PassResult:
        # ExecuTorch wraps passes in functions.
        if changes_nothing(getattr(step, "__wrapped__", step), module):
            return PassResult(module, False)
        return step(module)

    return run


def changes_nothing(step: Any, module: GraphModule) -> bool:
    """Return True if a pass certainly keeps every op of a graph as it is."""
    if not _only_looks_at_ops(type(step)) or len(graph_modules(module)) > 1:
        return False
    given: list[Any] = []
    result: ProxyValue | None = None

    def traced(_: ExportPass, op: Any, args: Any, kwargs: Any, meta: object) -> ProxyValue | None:
        """Check that a pass keeps an op, in place of tracing it."""
        handed = _parts(op, args, kwargs)
        if len(handed) != len(given) or not all(map(operator.is_, handed, given)):
            raise ValueError("the pass changes the op")
        return result

    probe, calls = copy.copy(step), [n for n in module.graph.nodes if n.op == "call_function"]
    # It can't trace another op.
    probe.interpreter = probe.tracer = None
    with patch.object(ExportPass, "call_operator", traced):
        try:
            for node in (n for n in calls if n.target is not operator.getitem):
                args, kwargs = map_arg((node.args, dict(node.kwargs)), _value)
                given, result = _parts(node.target, args, kwargs), _value(node)
                returned = probe.call_operator(node.target, args, kwargs, NodeMetadata(node.meta))
                if returned is not result or not isinstance(node.target, OpOverload):
                    return False
        except Exception:  # The pass does something else with an op, so it is run.
            return False
    return True


def _only_looks_at_ops(kind: type) -> bool:
    """Return True if a class is a pass that defines `call_operator` alone."""
    if not issubclass(kind, ExportPass):
        return False
    own = [vars(base) for base in kind.__mro__[: kind.__mro__.index(ExportPass)]]
    names = {name for defined in own for name in defined if callable(defined[name])}
    return names <= {"call_operator"}


def _value(node: Node) -> Any:
    """Return the value of a node as a trace has it."""
    if node.op == "get_attr":
        return getattr(node.graph.owning_module, str(node.target))
    value = node.meta["val"]
    constant = getattr(value, "constant", None)
    return ProxyValue(value if constant is None else constant, Proxy(node))


def _parts(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    return [op, *args, *kwargs, *kwargs.values()]
