"""Control flow whose branches torch can't trace, or whose values ExecuTorch overwrites."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import GraphModule, Node

from etdev.graph.nodes import graph_modules
from etdev.graph.ops import is_functional
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.symbols import fake_mode, with_own_graphs
from etdev.schema.quirk import Nodes, Quirk, Refusal, Stage
from etdev.upstream.fake_tensors import FakeTensorMode
from etdev.upstream.operators import OpOverload, schema_of

_HIGHER = torch.ops.higher_order
_MAP = _HIGHER.map_impl
# The last argument of each are the values that its branches are given after all others.
_FLOW = (_HIGHER.cond, _MAP, _HIGHER.scan, _HIGHER.while_loop, _HIGHER.associative_scan)

_GIVEN = "branch_constant_"


def branch_constants(program: ExportedProgram) -> list[Node]:
    """Return the nodes of branches that read a tensor which the branch holds."""
    branches = graph_modules(program.graph_module)[1:]
    return [node for branch in branches for node in _held(branch)]


def give_constants(program: ExportedProgram, _: Sequence[Node]) -> ExportedProgram:
    """Give branches the tensors that they hold, as constants of the program."""
    copied = with_own_graphs(program)
    mode = fake_mode(program.graph.nodes)
    assert mode is not None
    _give(copied.graph_module, mode)
    return _lifted(copied)


def _held(module: GraphModule) -> list[Node]:
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
    buffers = module.named_buffers(recurse=False, remove_duplicate=False)
    name = f"_given_{sum(key.startswith('_given_') for key, _ in buffers)}"
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
    """Return the node that the inputs of a branch end before."""
    first: Node = next(node for node in branch.graph.nodes if node not in inputs)
    return first


def _lifted(program: ExportedProgram) -> ExportedProgram:
    """Make the tensors that a program's graph holds constants of it."""
    graph = copy_graph(program.graph)
    signature = program.graph_signature
    specs = list(signature.input_specs)
    constants: dict[str, torch.Tensor] = {}
    known = sum(str(spec.target).startswith(_GIVEN) for spec in specs)
    users = [i for i, spec in enumerate(specs) if spec.kind == InputKind.USER_INPUT]
    place = users[0] if users else len(specs)
    for held in _held(program.graph_module):
        node = next(n for n in graph.nodes if n.name == held.name)
        target = f"{_GIVEN}{known + len(constants)}"
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


def _has_several_results(node: Node) -> bool:
    return len(node.meta["val"]) > 1


@frozen(eq=False)
class Mapped:
    """A map over several tensors."""

    node: Node
    number: int


def maps_over_several(program: ExportedProgram) -> Iterator[Mapped]:
    """Yield the maps over several tensors."""
    for module in graph_modules(program.graph_module):
        for node in module.graph.find_nodes(op="call_function", target=_MAP):
            if len(node.args[1]) > 1:
                yield Mapped(node, len(node.args[1]))


def split_maps(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Map once for each result that is read, with what it needs of the body."""
    # A body may have such maps itself, and is copied for each result.
    for node in reversed(found):
        module: Any = node.graph.owning_module
        body: Any = node.args[0]
        for item in list(node.users):
            _give_its_own(module, node, item)
        module.graph.erase_node(node)
        if not body.users:
            module.graph.erase_node(body)
            module.delete_submodule(body.target)
        module.recompile()
    return program


def _give_its_own(module: GraphModule, node: Node, item: Node) -> None:
    """Let one result of a map be that of a map of its own."""
    index: Any = item.args[1]
    body: Any = node.args[0]
    name = f"{node.name}_body_{index}"
    setattr(module, name, _with_one_result(getattr(module, body.target), index))
    with module.graph.inserting_before(node):
        own = module.graph.get_attr(name)
        single = module.graph.call_function(_MAP, (own, *node.args[1:]), dict(node.kwargs))
    single.meta = {**node.meta, "val": (node.meta["val"][index],)}
    item.args = (single, 0)
    assert item.target is operator.getitem


def _with_one_result(body: GraphModule, index: int) -> GraphModule:
    """Return a body with one of its results, without nodes that only other results need."""
    single = copy.deepcopy(body)
    output = single.graph.output_node()
    output.args = ((output.args[0][index],),)  # type: ignore[index]
    single.graph.eliminate_dead_code()
    single.recompile()
    return single


def _writes_outside(node: Node) -> bool:
    """Return True if a node of a branch writes to an input of the branch."""
    op = node.target
    if not isinstance(op, OpOverload) or not schema_of(op).is_mutable:
        return False
    written = node.args[0]
    # What is a view of an input, or was written before, is that input.
    while isinstance(written, Node) and isinstance(written.target, OpOverload):
        if is_functional(written.target):
            return False
        written = written.args[0]
    return isinstance(written, Node) and written.op == "placeholder"


def writing_branches(program: ExportedProgram) -> list[Node]:
    """Return the nodes of branches that write to what is outside."""
    branches = graph_modules(program.graph_module)[1:]
    return [node for branch in branches for node in branch.graph.nodes if _writes_outside(node)]


BRANCH_CONSTANTS = Quirk(
    name="branch-constants",
    stage=(Stage.SOURCE, Stage.LOOP),
    summary="A tensor that is written out inside control flow stays an attribute of the branch, "
    "which no later trace takes.",
    upstream="not reported; torch/_export/passes/lift_constants_pass.py, lift_constants_pass",
    affects="torch<2.15",
    find=branch_constants,
    fix=give_constants,
)
BRANCH_WRITES = Quirk(
    name="branch-writes",
    stage=Stage.DECOMPOSED,
    summary="A branch or a body that writes to what is outside can't be made functional.",
    upstream="not reported; torch/_higher_order_ops/utils.py, potential_input_alias_or_mutation",
    affects="torch<2.15",
    find=writing_branches,
    symptom=lambda error: "is not functional" in str(error),
    refusal=Refusal(
        "a branch or a loop's body writes to what is outside with {ops}, which ExecuTorch can't do",
        "return the new value from every branch, and write it after torch.cond",
    ),
)
MAPS_OF_SEVERAL_RESULTS = Quirk(
    name="maps-of-several-results",
    stage=(Stage.LOOP, Stage.PLANNED),
    summary="A torch.map with several results can't be emitted.",
    upstream="not reported; executorch/exir/emit/_emitter.py, _emit_map",
    affects="executorch<1.6",
    find=Nodes((_MAP,), _has_several_results, branches=True),
    fix=split_maps,
)
WHILE_LOOPS = Quirk(
    name="while-loops",
    stage=Stage.PLANNED,
    summary="A while_loop can't be emitted.",
    upstream="not reported; executorch/exir/emit/_emitter.py, _emit_control_flow",
    affects="executorch<1.6",
    find=Nodes((_HIGHER.while_loop,), branches=True),
    refusal=Refusal(
        "ExecuTorch can't run while_loop, and no plugin took {found.name}{where}",
        "unroll the loop, or write it with torch's scan and a fixed number of steps",
    ),
)
MAPS_OVER_SEVERAL_TENSORS = Quirk(
    name="maps-over-several-tensors",
    stage=Stage.PLANNED,
    summary="A torch.map over several tensors can't be emitted.",
    upstream="not reported; executorch/exir/emit/_emitter.py, _emit_map",
    affects="executorch<1.6",
    find=maps_over_several,
    refusal=Refusal(
        "ExecuTorch can't map over {found.number} tensors at once, and no plugin took "
        "{found.node.name}{where}",
        "concatenate them, or write it with torch's scan",
    ),
)
QUIRKS = (
    BRANCH_CONSTANTS,
    BRANCH_WRITES,
    MAPS_OF_SEVERAL_RESULTS,
    WHILE_LOOPS,
    MAPS_OVER_SEVERAL_TENSORS,
)
