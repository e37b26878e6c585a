"""Results and views of control flow, which memory planning overwrites or misplaces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.ops import is_flow
from etdev.graph.signature import renamed
from etdev.schema.quirk import Quirk, Refusal, Stage
from etdev.upstream.operators import edge_ops

_COND, _MAP, _SCAN = (getattr(torch.ops.higher_order, n) for n in ("cond", "map_impl", "scan"))
# In the edge dialect, and in ATen.
_VIEWS = ("aten.view_copy.default", "aten.reshape.default")


def misplaced_views(program: ExportedProgram) -> list[Node]:
    """Return the views, in the bodies of maps and scans, of what is carried or captured.

    ExecuTorch gives bodies memory for all their inputs, and a view of one is read there, though
    only rows are ever put there: what is carried or captured stays where it is.
    """
    modules = graph_modules(program.graph_module)
    return [view for module in modules for view in _misplaced_views(module)]


def _misplaced_views(module: GraphModule) -> Iterator[Node]:
    for node in module.graph.nodes:
        if node.target not in (_MAP, _SCAN):
            continue
        body: Any = node.args[0]
        # map_impl(body, rows, captured), scan(body, carried, rows, captured)
        given = [len(values) for values in node.args[1:]]
        first = sum(given[:-2])
        branch: Any = module.get_submodule(body.target)
        inputs = branch.graph.find_nodes(op="placeholder")
        for bound in (*inputs[:first], *inputs[first + given[-2] :]):
            yield from [user for user in bound.users if op_name(user) in _VIEWS]


def copy_viewed(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Copy what is viewed."""
    permute = _op(program, "permute_copy" if program.dialect == "EDGE" else "permute")
    for view in found:
        source = view.all_input_nodes[0]
        with view.graph.inserting_before(view):
            # ExecuTorch checks branches, and takes one of two ops for a clone by its settings.
            same = (source, list(range(source.meta["val"].dim())))
            copied = view.graph.call_function(permute, same)
        copied.meta = {"val": source.meta["val"]}
        view.replace_input_with(source, copied)
        _recompile(view)
    return program


def viewed_results(program: ExportedProgram) -> list[Node]:
    """Return the results of control flow that are viewed."""
    return [
        result
        for module in graph_modules(program.graph_module)
        for _, result in _results(module.graph)
        if any(op_name(user) in _VIEWS for user in result.users)
    ]


def overwritten_results(program: ExportedProgram) -> list[Node]:
    """Return the results of `torch.cond` that are read after another flow has run."""
    modules = graph_modules(program.graph_module)
    return [result for module in modules for result in _overwritten(module.graph)]


def _overwritten(graph: Graph) -> Iterator[Node]:
    conds = [(flow, result) for flow, result in _results(graph) if flow.target is _COND]
    if not conds:
        return
    position = {node: index for index, node in enumerate(graph.nodes)}
    flows = [index for node, index in position.items() if is_flow(node.target)]
    for cond, result in conds:
        last = _last_read(result, position)
        if any(position[cond] < index <= last for index in flows):
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


def clone_results(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Clone results of flows right after them."""
    names, op = {}, _op(program, "clone")
    for result in found:
        with result.graph.inserting_after(result):
            clone = result.graph.call_function(op, (result,))
        clone.meta = {"val": result.meta["val"]}
        result.replace_all_uses_with(clone)
        clone.args = (result,)
        if result.graph is program.graph:
            names[result.name] = clone.name
        _recompile(result)
    specs = program.graph_signature.output_specs
    specs[:] = [renamed(spec, names) for spec in specs]
    return program


def _op(program: ExportedProgram, name: str) -> Any:
    """Return an op in the dialect of a program."""
    ops = edge_ops.edge.aten if program.dialect == "EDGE" else torch.ops.aten
    return getattr(ops, name).default


def _recompile(node: Node) -> None:
    module = node.graph.owning_module
    if module is not None:
        module.recompile()


def _in_reach(find: Callable[[ExportedProgram], list[Node]]) -> Callable[[Any], list[Node]]:
    """Look only where there is control flow at all."""
    return lambda program: find(program) if len(graph_modules(program.graph_module)) > 1 else []


_OVERWRITTEN = Refusal(
    "ExecuTorch would overwrite {found.name}, the result of a torch.cond, in the next one",
    "lower with etdev.Lowerer, which keeps it",
)
MISPLACED_VIEWS = Quirk(
    name="misplaced-views",
    stage=(Stage.PLANNED, Stage.LOOP),
    summary="The body of a map or scan that views what it captures or carries reads the memory of "
    "an input that is never written.",
    upstream="not reported; executorch/exir/memory_planning.py, _apply_algo_to_submodules",
    affects="executorch<1.6",
    find=_in_reach(misplaced_views),
    fix=copy_viewed,
    in_loop=Refusal(
        "ExecuTorch would read {found.all_input_nodes[0].name} in the wrong place, which the body "
        "of a map or scan is given and {found.name} views{where}",
        "lower with etdev.Lowerer, which copies it first",
    ),
    undefined=True,
)
VIEWED_RESULTS = Quirk(
    name="viewed-results",
    stage=(Stage.PLANNED, Stage.LOOP),
    summary="A view of a result of control flow is read where nothing was put.",
    upstream="not reported; executorch/exir/memory_planning.py, _apply_algo_to_submodules",
    affects="executorch<1.6",
    find=_in_reach(viewed_results),
    fix=clone_results,
    in_loop=_OVERWRITTEN,
    undefined=True,
)
OVERWRITTEN_RESULTS = Quirk(
    name="overwritten-results",
    stage=(Stage.PLANNED, Stage.LOOP),
    summary="The result of a torch.cond is overwritten by the branches of the next one.",
    upstream="not reported; executorch/exir/memory_planning.py, _apply_algo_to_submodules",
    affects="executorch<1.6",
    find=_in_reach(overwritten_results),
    fix=clone_results,
    in_loop=_OVERWRITTEN,
    undefined=True,
)
QUIRKS = (MISPLACED_VIEWS, VIEWED_RESULTS, OVERWRITTEN_RESULTS)
