"""ExecuTorch's passes from ATen to the edge dialect, without work that changes nothing.

Each pass traces the whole program anew, for which it runs every op in fake tensors. A pass that
hands every op on as it is makes the graph it was given, and the next pass traces that graph again:
such a pass is left out.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from executorch.exir import EdgeCompileConfig
from executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from executorch.exir.program import _program
from torch.fx import GraphModule, Node, Proxy
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from etdev.upstream.operators import OpOverload
from etdev.upstream.shortcuts.switch import Shortcut

PASSES = Shortcut(
    "conversion without passes that change nothing",
    (
        "executorch.exir.program._program.MemoryFormatOpsPass",
        "executorch.exir.program._program.OpReplacePass",
        "executorch.exir.program._program._get_aten_to_edge_passes",
    ),
)
Pass = Callable[[GraphModule], PassResult]


@contextmanager
def fewer_passes(config: EdgeCompileConfig) -> Iterator[None]:
    """Let ExecuTorch's conversion by some settings run only the passes that change a program."""
    if not PASSES.is_on:
        yield
        return
    passes = _program._get_aten_to_edge_passes

    def needed(config: EdgeCompileConfig) -> tuple[list[Pass], Sequence[Pass]]:
        before, after = passes(config)
        return [only_if_needed(step) for step in before], after

    unchanged = partial(PassResult, modified=False)
    both: Any = {"OpReplacePass": _edge_ops_pass(), "MemoryFormatOpsPass": lambda: unchanged}
    parts = {} if config._skip_dim_order else both
    with patch.multiple(_program, _get_aten_to_edge_passes=needed, **parts):
        yield


def _edge_ops_pass() -> type[ExportPass]:
    """Return ExecuTorch's passes to edge ops as one: the first hands each op on to the second."""

    class EdgeOpsPass(_program.OpReplacePass, _program.MemoryFormatOpsPass):  # type: ignore[misc]
        pass

    return EdgeOpsPass


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
    branches = any(isinstance(inner, GraphModule) for inner in module.children())
    if branches or not _only_looks_at_ops(type(step)):
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
