"""In place: ops that write to a value nobody else sees become ops that return a new one.

torch makes a program functional by tracing all of it, which is a fifth of a small network's
lowering. Most of what writes in place is a `relu_` of what the op before it has just computed.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from etdev.graph.ops import is_functional
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.writes import may_hand_on


def with_new_values(program: ExportedProgram) -> ExportedProgram:
    """Have ops return new values that write to a value nobody else sees.

    Args:
        program: An ATen program; it is not changed.
    """
    graph = copy_graph(program.graph)
    position = {node: index for index, node in enumerate(graph.nodes)}
    changed = [node for node in graph.nodes if _replace(node, position)]
    if not changed:
        return program
    return rebuilt(program, graph, program.graph_signature, program.graph_module)


def _replace(node: Node, position: dict[Node, int]) -> bool:
    """Have a node return a new value if it may; returns whether it does."""
    twin = _twin(node.target)
    if twin is None or not node.args or not isinstance(node.args[0], Node):
        return False
    written = node.args[0]
    earlier = [user for user in written.users if position[user] < position[node]]
    if not all(map(_computes_anew, (written, *earlier))) or not _gives_alike(node, twin):
        return False
    node.target = twin
    for user in list(written.users):
        if position[user] > position[node]:
            user.replace_input_with(written, node)
    return True


def _twin(op: object) -> OpOverload | None:
    """The op that returns what another one writes to its first argument."""
    if not isinstance(op, OpOverload) or not op._opname.endswith("_"):
        return None
    packet = getattr(getattr(torch.ops, op.namespace), op._opname.removesuffix("_"), None)
    twin = getattr(packet, op._overloadname, None)
    if not isinstance(twin, OpOverload) or not is_functional(twin):
        return None
    given, wanted = ([(a.name, str(a.type)) for a in o._schema.arguments] for o in (op, twin))
    alone = all(argument.alias_info is None for argument in op._schema.arguments[1:])
    drawn = torch.Tag.nondeterministic_seeded in op.tags
    return twin if given == wanted and alone and not drawn else None


def _computes_anew(node: Node) -> bool:
    """Whether a node's result is certain to share no memory with what it reads."""
    op = node.target
    return isinstance(op, OpOverload) and is_functional(op) and not may_hand_on(node)


def _gives_alike(node: Node, twin: OpOverload) -> bool:
    """Whether an op returns what fits where another one writes."""
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda source: source.meta["val"])
    wanted, given = node.meta["val"], twin(*args, **kwargs)
    # Compared as text, since comparing symbolic sizes would fix them.
    return given.dtype == wanted.dtype and all(
        str(one) == str(other)
        for one, other in ((given.shape, wanted.shape), (given.stride(), wanted.stride()))
    )
