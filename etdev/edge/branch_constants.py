"""Branch constants: tensors that are written out inside control flow become constants of a program.

`torch.export` leaves a `torch.tensor([1, 2])` of a branch in the branch, as an attribute with data,
and no later trace takes that. Every other value that a branch reads is given to it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import GraphModule, Node

from etdev.graph.nodes import graph_modules
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.symbols import fake_mode, with_own_graphs

_HIGHER = torch.ops.higher_order
# The last argument of each are the values that its branches are given after all others.
_FLOW = tuple(
    getattr(_HIGHER, name)
    for name in ("cond", "map_impl", "scan", "while_loop", "associative_scan")
)


def with_given_constants(program: ExportedProgram) -> ExportedProgram:
    """Give branches the tensors that they hold, as constants of the program.

    Args:
        program: An ATen program; it is not changed, and returned if no branch holds a tensor.
    """
    mode = fake_mode(program.graph.nodes)
    branches = graph_modules(program.graph_module)[1:]
    if mode is None or not any(_held(branch) for branch in branches):
        return program
    copied = with_own_graphs(program)
    _give(copied.graph_module, mode)
    return _lifted(copied)


def _held(module: GraphModule) -> list[Node]:
    """The nodes of a graph that read a tensor of its module."""
    nodes = module.graph.find_nodes(op="get_attr")
    return [node for node in nodes if isinstance(_value(module, node), torch.Tensor)]


def _value(module: GraphModule, node: Node) -> Any:
    return getattr(module, str(node.target), None)


def _give(module: GraphModule, mode: FakeTensorMode) -> None:
    """Have a module hold what its branches hold, and give it to them."""
    for node in [node for node in module.graph.nodes if node.target in _FLOW]:
        sources = [s for s in node.all_input_nodes if s.op == "get_attr"]
        branches = [b for s in sources if isinstance(b := _value(module, s), GraphModule)]
        for branch in branches:
            _give(branch, mode)
        for branch in branches:
            for held in _held(branch):
                _give_one(module, node, branches, (branch, held), mode)
        for branch in branches:
            branch.recompile()
    module.recompile()


def _give_one(
    module: GraphModule,
    node: Node,
    branches: list[GraphModule],
    held: tuple[GraphModule, Node],
    mode: FakeTensorMode,
) -> None:
    """Have a module hold what one of its branches holds; the others are given it, too."""
    owner, inner = held
    value = _value(owner, inner)
    name = f"_given_{sum(key.startswith('_given_') for key in module._buffers)}"
    module.register_buffer(name, value)
    with module.graph.inserting_before(node):
        outer = module.graph.get_attr(name)
    outer.meta["val"] = mode.from_tensor(value, static_shapes=True)
    *others, given = node.args
    node.args = (*others, (*given, outer) if isinstance(given, tuple) else [*given, outer])  # type: ignore[misc]
    for branch in branches:
        before = branch.graph.find_nodes(op="placeholder")
        with branch.graph.inserting_before(_first_after(branch, before)):
            entry = branch.graph.placeholder(f"given_{len(before)}")
        entry.meta["val"] = outer.meta["val"]
        if branch is owner:
            inner.replace_all_uses_with(entry)
            branch.graph.erase_node(inner)
    if not owner.graph.find_nodes(op="get_attr", target=inner.target):
        delattr(owner, str(inner.target))


def _first_after(branch: GraphModule, inputs: list[Node]) -> Node:
    """The node that the inputs of a branch end before."""
    first: Node = next(node for node in branch.graph.nodes if node not in inputs)
    return first


def _lifted(program: ExportedProgram) -> ExportedProgram:
    """The program with the tensors that its graph holds as constants."""
    graph = copy_graph(program.graph)
    signature = program.graph_signature
    specs = list(signature.input_specs)
    constants: dict[str, torch.Tensor] = {}
    users = [i for i, spec in enumerate(specs) if spec.kind == InputKind.USER_INPUT]
    place = users[0] if users else len(specs)
    for held in _held(program.graph_module):
        node = next(n for n in graph.nodes if n.name == held.name)
        target = f"branch_constant_{len(constants)}"
        placeholders = graph.find_nodes(op="placeholder")
        before = placeholders[place] if place < len(placeholders) else node
        with graph.inserting_before(before):
            entry = graph.placeholder(f"c_{target}")
        entry.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(entry)
        graph.erase_node(node)
        constants[target] = _value(program.graph_module, held)
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(entry.name), target)
        specs.insert(place, spec)
        place += 1
    given = ExportGraphSignature(specs, list(signature.output_specs))
    return rebuilt(program, graph, given, program.graph_module, constants)
