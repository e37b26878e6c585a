"""ExecuTorch's passes from ATen to the edge dialect; those that would change nothing are left out.

Each pass traces the whole program anew, for which it runs every op in fake tensors. A pass that
hands every op on as it is makes the graph it was given, and the next pass traces that graph again.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from executorch.exir import EdgeCompileConfig
from executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node, Proxy
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from etdev.graph.interpreted import Interpreted
from etdev.upstream.edge import Pass, to_edge_program
from etdev.upstream.operators import OpOverload


def generate(
    config: EdgeCompileConfig, program: ExportedProgram, ops: Sequence[OpOverload]
) -> ExportedProgram:
    """Convert a decomposed ATen program, which may be changed, with some ops kept whole."""
    # A dozen passes make a graph each, and only the last graph is made a program.
    program.graph.set_codegen(Interpreted())
    return to_edge_program(config, program, ops, only_if_needed)


def only_if_needed(step: Pass) -> Pass:
    """Return a pass that is not run on graphs which it would leave as they are."""

    def run(module: GraphModule) -> PassResult:
        # ExecuTorch wraps passes in functions.
        if changes_nothing(getattr(step, "__wrapped__", step), module):
            return PassResult(module, False)
        return step(module)

    return run


def changes_nothing(step: Any, module: GraphModule) -> bool:
    """Return True if it is certain that a pass hands on every op of a graph as it is."""
    if not _only_looks_at_ops(type(step)):
        return False
    probe = copy.copy(step)
    probe.__class__ = type(type(step).__name__, (type(step), _HandsOn), {})
    try:
        return all(probe.hands_on(module, node) for node in module.graph.nodes)
    except Exception:  # The pass does something else with an op, so it is run.
        return False


def _only_looks_at_ops(kind: type) -> bool:
    """Return True if a class is a pass that defines `call_operator` alone."""
    if not issubclass(kind, ExportPass):
        return False
    own = [vars(base) for base in kind.__mro__[: kind.__mro__.index(ExportPass)]]
    names = {name for defined in own for name in defined if callable(defined[name])}
    return names <= {"call_operator"}


class _ChangeError(Exception):
    """Raised where a pass doesn't hand an op on as it is."""


class _HandsOn(ExportPass):  # type: ignore[misc]
    """A base class between a pass and ExportPass, which would trace what it is handed."""

    given: list[Any]
    result: ProxyValue

    def hands_on(self, module: GraphModule, node: Node) -> bool:
        """Return True if the pass hands this node on as it is."""
        if node.op in ("placeholder", "get_attr", "output"):
            return not isinstance(getattr(module, str(node.target), None), GraphModule)
        if node.target is operator.getitem:
            return True
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return False

        def value(source: Node) -> Any:
            if source.op == "get_attr":
                return getattr(module, str(source.target))
            given = source.meta["val"]
            constant = getattr(given, "constant", None)
            return ProxyValue(given if constant is None else constant, Proxy(source))

        args, kwargs = map_arg(node.args, value), map_arg(dict(node.kwargs), value)
        self.given = _parts(node.target, args, kwargs)
        self.result = ProxyValue(node.meta["val"], Proxy(node))
        meta = NodeMetadata(node.meta)
        return self.call_operator(node.target, args, kwargs, meta) is self.result

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        handed = _parts(op, args, kwargs)
        if len(handed) != len(self.given) or not all(map(operator.is_, handed, self.given)):
            raise _ChangeError
        return self.result

    def _fx(self, *args: Any, **kwargs: Any) -> ProxyValue:
        raise _ChangeError


def _parts(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    return [op, *args, *kwargs, *kwargs.values()]
