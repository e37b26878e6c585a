"""Functional programs, in which an op returns a new value instead of writing to an input.

torch makes a program functional by tracing all of it, which takes a fifth of a small network's
lowering. Most in-place ops are a `relu_` of the value that the op before has just computed, so
these are replaced here without a trace.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from etdev.edge.simplify.folding import looks_like
from etdev.graph.ops import is_functional, may_hand_on, sibling, written_through
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.upstream.operators import OpOverload, base_name, schema_of
from etdev.upstream.shortcuts.switch import Shortcut

OWN_WRITES = Shortcut("functional programs without a trace")

# Views that stay in a functional program, and compositions of views and copies that have no entry
# in torch's table of decompositions.
_PLAIN_VIEWS = {
    *("alias", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
    *("squeeze", "transpose", "unbind", "unsqueeze", "view"),
    *("contiguous", "expand_as", "flatten", "mT", "movedim", "narrow", "numpy_T", "ravel"),
    *("reshape", "reshape_as", "swapaxes", "swapdims", "t", "to", "type_as", "unflatten"),
    *("view_as",),
}
# The module of the functions by which programs enter and leave it.
_VMAP = "torch._functorch.predispatch"


def without_own_writes(program: ExportedProgram) -> ExportedProgram:
    """Replace in-place ops that only the program itself can see, if that makes it functional."""
    if not OWN_WRITES.is_on or _is_functional(program):
        return program
    # Values under `torch.vmap` compute only between its calls.
    if any(getattr(node.target, "__module__", "") == _VMAP for node in program.graph.nodes):
        return program
    easier = _with_new_values(program)
    return easier if _is_functional(easier) else program


def functional(program: ExportedProgram) -> ExportedProgram:
    """Make an ATen program functional, by a trace where that needs one."""
    if _is_functional(program):
        return program
    ops = {node.target for node in written_through(program.graph)}
    table = torch.export.default_decompositions() if ops else {}
    # torch would take the results of these ops for new values.
    opened = {op: table[op] for op in ops if op in table}
    traced: ExportedProgram = program.run_decompositions(opened)
    return traced


def _is_functional(program: ExportedProgram) -> bool:
    """Return True if a program writes to nothing, and has no views but plain ones."""
    return all(
        not isinstance(node.target, OpOverload)
        or is_functional(node.target)
        or base_name(node.target) in _PLAIN_VIEWS
        for node in program.graph.nodes
    )


def _with_new_values(program: ExportedProgram) -> ExportedProgram:
    """Replace in-place ops on values that no other node or caller sees, and each `chunk`."""
    graph = copy_graph(program.graph)
    position = {node: index for index, node in enumerate(graph.nodes)}
    changed = [node for node in graph.nodes if _split(node) or _replace(node, position)]
    return rebuilt(program, graph) if changed else program


def _split(chunk: Node) -> bool:
    """Make a chunk of a known size a `split`, which plugins may want whole."""
    if chunk.target != torch.ops.aten.chunk.default or chunk.kwargs:
        return False
    tensor, number, dim = (*chunk.args, 0)[:3]
    size = tensor.meta["val"].shape[dim]  # type: ignore[union-attr]
    if not isinstance(size, int) or not size:
        return False
    chunk.target = torch.ops.aten.split.Tensor
    chunk.args = (tensor, -(-size // number), dim)  # type: ignore[operator]
    return True


def _replace(node: Node, position: dict[Node, int]) -> bool:
    """Make an op return a new value where possible; return True if it was changed."""
    twin = _twin(node.target)
    if twin is None or not node.args or not isinstance(node.args[0], Node):
        return False
    written = node.args[0]
    earlier = [user for user in written.users if position[user] < position[node]]
    if not all(map(_computes_anew, (written, *earlier))):
        return False
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda source: source.meta["val"])
    # The twin may return another dtype, other sizes or strides than the tensor that is written.
    if not looks_like(twin(*args, **kwargs), node.meta["val"]):
        return False
    node.target = twin
    for user in list(written.users):
        if position[user] > position[node]:
            user.replace_input_with(written, node)
    return True


def _twin(op: object) -> OpOverload | None:
    """Return the op that returns what another one, such as `relu_`, writes to its first argument.

    Return None if no op has the same arguments, or if this one writes to more, or is random.
    """
    if not isinstance(op, OpOverload) or not base_name(op).endswith("_"):
        return None
    twin = sibling(op, base_name(op).removesuffix("_"))
    if twin is None or not is_functional(twin):
        return None
    given, wanted = ([(a.name, str(a.type)) for a in schema_of(o).arguments] for o in (op, twin))
    more = any(argument.alias_info for argument in schema_of(op).arguments[1:])
    random = torch.Tag.nondeterministic_seeded in op.tags
    return twin if given == wanted and not more and not random else None


def _computes_anew(node: Node) -> bool:
    """Return True if a node's result certainly shares no memory with its inputs."""
    op = node.target
    return isinstance(op, OpOverload) and is_functional(op) and not may_hand_on(node)
