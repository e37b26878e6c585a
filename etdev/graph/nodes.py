"""The op of a graph node, its value, its device, and the source that it comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.sym_util import eval_upper_bound
from torch.fx import Graph, GraphModule, Node

from etdev.graph.ops import ORDERED
from etdev.schema.device import CPU, Device
from etdev.schema.dtypes import dtype_name
from etdev.schema.ledger import DELEGATE
from etdev.schema.partition import target_device
from etdev.schema.tensors import SCALAR, Tensor
from etdev.upstream.operators import overload_of
from etdev.upstream.trees import pytree

# A getitem of a delegate has the value of some op, but must not be taken for that op.
FOREIGN_META = ("nn_module_stack", "source_fn_stack")
# Key of `node.meta`: the ops that plugins decomposed into the node and others; outermost first.
PIECES_OF = "etdev.pieces_of"
_TORCH = re.compile(r"site-packages[/\\](torch|torchao|executorch)[/\\]")
# torch numbers generated code through the process, and its passes add nodes of their own.
_FRAME = re.compile(r'File "(?!<|[^"]*\btorch[/\\]fx[/\\])(?P<file>[^"]+)", line (?P<line>[0-9]+)')
# The key of `node.meta` for the Python calls that a node comes from, by which some backends group
# nodes; and its value for a node that comes from no call and no module.
CALLS = "source_fn_stack"
NO_CALL = (("", ""),)
# More than any size that is bounded on purpose.
_LARGEST = 2**48


def graph_modules(root: GraphModule) -> list[GraphModule]:
    """Return a graph module and those of its branches, nested ones included."""
    return [module for module in root.modules() if isinstance(module, GraphModule)]


def calls_in(module: GraphModule) -> Iterator[Node]:
    """Yield the computing nodes of a graph and of its branches."""
    for inner in graph_modules(module):
        yield from (node for node in inner.graph.nodes if node.op == "call_function")


def fingerprint(graph: Graph) -> list[str]:
    """Return a line for each node, which changes when a node is added, removed or rewired."""
    return [f"{n.name} {n.target} {n.args} {n.kwargs}" for n in graph.nodes]


def op_name(node: Node) -> str:
    """Return the op of a node as users know it: `aten.linear.default`, `call_delegate`."""
    if node.target is executorch_call_delegate:
        return DELEGATE
    op = overload_of(node.target)
    return str(op) if op else getattr(node.target, "__name__", str(op))


def module_paths(node: Node) -> list[str]:
    """Return the paths of a node's source modules, the model itself (empty) first."""
    stack = (node.meta.get("nn_module_stack") or {}).values()
    return [str(path) for path, kind in stack if path != kind]  # Equal in torch's placeholder.


def pieces_of(node: Node) -> tuple[str, ...]:
    """Return the ops that plugins decomposed into this node and others, outermost first."""
    ops: tuple[str, ...] = node.meta.get(PIECES_OF, ())
    return ops


def describe(node: Node) -> Tensor:
    """Return the value of a node as a Tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return Tensor(node.name, SCALAR, (), 8)
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    bounds = [bound for size in value.shape if (bound := upper_bound(size)) is not None]
    size_bytes = math.prod(bounds) * value.element_size() if len(bounds) == value.dim() else None
    return Tensor(node.name, dtype_name(value.dtype), shape, size_bytes)


def delegate_device(call: Node) -> Device:
    """Return the device of the delegate that a node calls, by its `target_device` spec."""
    module = getattr(call.graph.owning_module, str(call.all_input_nodes[0].target))
    return target_device(call.name, module.compile_specs) or CPU


def is_complex(node: Node) -> bool:
    """Return True if a node reads or returns complex numbers."""
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    leaves = pytree.tree_leaves(values)
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in leaves)


def upper_bound(size: Any) -> int | None:
    """Return the largest value of a size; None if nothing bounds it."""
    try:
        bound = eval_upper_bound(size)
    except RuntimeError:
        # It depends on data, and no example of it is known.
        return None
    # An unbounded size comes back as sympy's infinity or as torch's largest int, too.
    return bound if isinstance(bound, int) and bound <= _LARGEST else None


def is_unbounded(size: torch.SymInt) -> bool:
    """Return True if nothing bounds a dynamic size; an example may be known."""
    return bool(size.node.shape_env.bound_sympy(size.node.expr).upper > _LARGEST)


def where(node: Node) -> str:
    """Return the innermost line outside of torch, as ` at net.py:12`; empty if unknown.

    An op that a pass or torchao has made gets that of the nearest value before it.
    """
    before = {node: None}
    for each in (queue := [node]):
        if is_own(each):
            return f" at {line_of(each)}"
        queue += [source for source in each.all_input_nodes if source not in before]
        before |= dict.fromkeys(each.all_input_nodes)
    line = line_of(node)
    return f" at {line}" if line else ""


def ops_with_lines(nodes: Iterable[Node]) -> str:
    """Return the ops of nodes and their lines, each once: `aten.add.Tensor at net.py:12, ...`."""
    # An op with effects is called through another, which keeps the order of effects.
    ops = [(n.args[1] if n.target is ORDERED else op_name(n), n) for n in nodes]
    return ", ".join(dict.fromkeys(f"{op}{where(node)}" for op, node in ops))


def line_of(node: Node) -> str:
    """Return the innermost line outside of torch, as `net.py:12`; empty if unknown."""
    return _line(_stack(node))


def is_own(node: Node) -> bool:
    """Return True if code outside of torch calls a node's op."""
    return any(not _TORCH.search(f["file"]) for f in _FRAME.finditer(_stack(node)))


def _stack(node: Node) -> str:
    return node.meta.get("stack_trace") or ""


# The pieces of an op, and ops of one line, share a stack.
@lru_cache(maxsize=1024)
def _line(stack: str) -> str:
    frames = list(_FRAME.finditer(stack))
    # Frames of torch's own modules count if there are no others.
    own = [frame for frame in frames if not _TORCH.search(frame["file"])]
    for frame in reversed(own or frames):
        return f"{Path(frame['file']).name}:{frame['line']}"
    return ""
