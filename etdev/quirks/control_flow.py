"""Control flow that ExecuTorch can't trace, or whose values it overwrites or misplaces."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.inlining import call
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.ops import is_flow
from etdev.graph.rebuild import with_changed
from etdev.graph.signature import renamed
from etdev.graph.symbols import fake_mode
from etdev.schema.quirk import Nodes, Quirk, Rejection
from etdev.schema.stages import EMIT, HAND_BACK, PREPARE, OwnProgram
from etdev.upstream.operators import ops_of

aten = torch.ops.aten
_HIGHER = torch.ops.higher_order
_MAP = _HIGHER.map_impl
# In the edge dialect, and in ATen.
_VIEWS = ("aten.view_copy.default", "aten.reshape.default")
# A tensor written out in a branch; more elements come from a table.
_MOST_WRITTEN = 64


def _held_tensor(node: Node) -> torch.Tensor | None:
    """Return the tensor of its graph module that a node reads, if it reads one."""
    held = getattr(node.graph.owning_module, str(node.target), None)
    return held if node.op == "get_attr" and isinstance(held, torch.Tensor) else None


def branch_constants(program: ExportedProgram) -> list[Node]:
    """Return the nodes of branches that read a tensor which the branch holds."""
    branches = graph_modules(program.graph_module)[1:]
    return [n for b in branches for n in b.graph.nodes if _held_tensor(n) is not None]


def _write_out(node: Node) -> None:
    """Compute a tensor that a branch holds from its numbers.

    Raises:
        ValueError: It has too many numbers.
    """
    value: Any = _held_tensor(node)
    if value.numel() > _MOST_WRITTEN:
        raise ValueError(f"it has {value.numel()} numbers")
    full, shape, dtype = aten.full.default, list(value.shape), value.dtype
    numbers = value.flatten().tolist()
    # Another node of the graph has a fake mode, and this one has none.
    with fake_mode(node.graph.nodes) or nullcontext():
        if len(numbers) < 2:
            made = call(node, full, shape, *(numbers or [0]), dtype=dtype)
        else:
            parts = [call(node, full, [1], number, dtype=dtype) for number in numbers]
            made = call(node, aten.view.default, call(node, aten.cat.default, parts), shape)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
    # Another node may read it.
    if not node.graph.find_nodes(op="get_attr", target=node.target):
        delattr(node.graph.owning_module, str(node.target))


def _is_unsupported(node: Node) -> bool:
    """Return True if a node is a while_loop, or maps over several tensors or to several results."""
    if node.target is _MAP:
        return len(node.args[1]) > 1 or len(node.meta["val"]) > 1  # type: ignore[arg-type]
    return node.target is _HIGHER.while_loop


def _is_resized(node: Node) -> bool:
    """Return True if a size depends on the call, apart from the number of rows."""
    carried = len(node.args[1]) if node.target is _HIGHER.scan else 0  # type: ignore[arg-type]
    shapes = [value.shape for value in node.meta["val"]]
    sizes = [*shapes[:carried], *(shape[1:] for shape in shapes[carried:])]
    return any(isinstance(size, torch.SymInt) for shape in sizes for size in shape)


def misplaced_views(program: ExportedProgram) -> Iterator[Node]:
    """Yield the views, in the bodies of maps and scans, of a value that is carried or captured.

    ExecuTorch gives bodies memory for all their inputs, and a view of one is read there, though
    only rows are ever put there: what is carried or captured stays where it is.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.target not in (_MAP, _HIGHER.scan):
                continue
            # map_impl(body, rows, captured), scan(body, carried, rows, captured)
            given = [len(values) for values in node.args[1:]]
            first = sum(given[:-2])
            branch: Any = module.get_submodule(node.args[0].target)
            inputs = branch.graph.find_nodes(op="placeholder")
            for bound in (*inputs[:first], *inputs[first + given[-2] :]):
                yield from (user for user in bound.users if op_name(user) in _VIEWS)


def copy_viewed(program: OwnProgram, found: Sequence[Node]) -> OwnProgram:
    """Copy the values that are viewed."""
    name = "permute_copy" if program.dialect == "EDGE" else "permute"
    permute = getattr(ops_of(program), name).default
    for view in found:
        source = view.all_input_nodes[0]
        with view.graph.inserting_before(view):
            # ExecuTorch checks branches, and takes one of two ops for a clone by its settings.
            same = (source, list(range(source.meta["val"].dim())))
            view.replace_input_with(source, call(view, permute, *same))
    return _recompiled(program)


def overwritten_results(program: ExportedProgram) -> Iterator[Node]:
    """Yield the results of control flow that are viewed, or that another flow overwrites."""
    for module in graph_modules(program.graph_module):
        position = {node: index for index, node in enumerate(module.graph.nodes)}
        flows = [index for node, index in position.items() if is_flow(node.target)]
        for flow, result in _results(module.graph):
            last = _last_read(result, position)
            later = any(position[flow] < index <= last for index in flows)
            viewed = any(op_name(user) in _VIEWS for user in result.users)
            if viewed or (later and flow.target is _HIGHER.cond):
                yield result


def _results(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the tensors that are results of control flow, each after its flow."""
    for flow in graph.nodes:
        for result in flow.users if is_flow(flow.target) else ():
            value = result.meta.get("val")
            if result.target is operator.getitem and isinstance(value, torch.Tensor):
                yield flow, result


def _last_read(node: Node, position: Mapping[Node, int]) -> int:
    """Return the position of the last node that reads a value, or a view of it."""
    return max(
        (
            max(position[user], _last_read(user, position) if op_name(user) in _VIEWS else 0)
            for user in node.users
        ),
        default=position[node],
    )


def clone_results(program: OwnProgram, found: Sequence[Node]) -> OwnProgram:
    """Clone results of flows right after them."""
    names, op = {}, ops_of(program).clone.default
    for result in found:
        with result.graph.inserting_after(result):
            clone = call(result, op, result)
        result.replace_all_uses_with(clone)
        clone.args = (result,)
        if result.graph is program.graph:
            names[result.name] = clone.name
    specs = program.graph_signature.output_specs
    specs[:] = [renamed(spec, names) for spec in specs]
    return _recompiled(program)


def _recompiled(program: OwnProgram) -> OwnProgram:
    for module in graph_modules(program.graph_module):
        module.recompile()
    return program


BRANCH_CONSTANTS = Quirk(
    name="branch-constants",
    stage=(PREPARE, HAND_BACK),
    summary="A tensor that is written out inside control flow stays an attribute of the branch, "
    "which no later trace takes.",
    upstream="pytorch/pytorch#180354; torch/_export/passes/lift_constants_pass.py, "
    "lift_constants_pass",
    find=branch_constants,
    fix=partial(with_changed, change=_write_out),
    refusal=Rejection(
        "a branch or a loop's body holds a tensor, which ExecuTorch can't trace ({why})",
        "register it as a buffer of the module",
    ),
)
UNSUPPORTED_FLOWS = Quirk(
    name="unsupported-flows",
    stage=EMIT,
    summary="A while_loop, and a torch.map over several tensors or to several results, can't be "
    "emitted.",
    upstream="pytorch/executorch#8769; executorch/exir/emit/_emitter.py, _emit_control_flow and "
    "_emit_map",
    find=Nodes(only=_is_unsupported, branches=True),
    refusal=Rejection(
        "ExecuTorch has neither while_loop nor maps of several tensors, and no plugin took "
        "{found.name}{where}",
        "write it with torch's scan and a fixed number of steps, or concatenate the tensors",
    ),
)
RESIZED_ROWS = Quirk(
    name="resized-rows",
    stage=EMIT,
    summary="What a scan carries, and a row that a scan or map gives, keeps the largest size of a "
    "dynamic dimension, and the program fails when it is called with another.",
    upstream="report written 2026-11-27; executorch/exir/emit/_emitter.py, _emit_scan and "
    "_emit_map",
    find=Nodes((_MAP, _HIGHER.scan), _is_resized, branches=True),
    refusal=Rejection(
        "ExecuTorch can't resize what {found.name}{where} carries or gives to a dynamic size",
        "fix all sizes but the number of rows, or write a loop over a fixed number of rows, which "
        "torch.export unrolls",
    ),
)
MISPLACED_VIEWS = Quirk(
    name="misplaced-views",
    stage=(EMIT, HAND_BACK),
    summary="The body of a map or scan that views what it captures or carries reads the memory of "
    "an input that is never written.",
    upstream="report written 2026-11-27; executorch/exir/memory_planning.py, "
    "_apply_algo_to_submodules",
    find=misplaced_views,
    fix=copy_viewed,
    in_loop=Rejection(
        "ExecuTorch would read {found.all_input_nodes[0].name} in the wrong place, which the body "
        "of a map or scan is given and {found.name} views{where}",
        "lower with etdev.Lowerer, which copies it first",
    ),
    undefined=True,
)
OVERWRITTEN_RESULTS = Quirk(
    name="overwritten-results",
    stage=(EMIT, HAND_BACK),
    summary="The result of a torch.cond is overwritten by the branches of the next one, and a view "
    "of any flow's result is read where nothing was put.",
    upstream="pytorch/executorch#21490 (PR #21818); executorch/exir/memory_planning.py, "
    "_apply_algo_to_submodules",
    find=overwritten_results,
    fix=clone_results,
    in_loop=Rejection(
        "ExecuTorch would overwrite {found.name}, the result of control flow, or misplace its view",
        "lower with etdev.Lowerer, which keeps it",
    ),
    undefined=True,
)
QUIRKS = (
    *(BRANCH_CONSTANTS, UNSUPPORTED_FLOWS, RESIZED_ROWS, MISPLACED_VIEWS, OVERWRITTEN_RESULTS),
)
