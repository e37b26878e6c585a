"""Hazards: what ExecuTorch's own loop and emission would refuse or compute wrongly.

`Lowerer` has a way around each of them; a Partitioner can only refuse.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from executorch.exir.backend.backend_details import BackendDetails
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.delegate.backends import ambiguous, compiler_of, namesakes
from etdev.delegate.control_flow import all_overwritten_results, misplaced_views
from etdev.edge import orders
from etdev.errors import EtdevWarning, LoweringError, PluginError
from etdev.graph.layout import mixing_convolutions
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.source import where
from etdev.planner.unclaimed import refuse_unclaimed
from etdev.quirks import emission
from etdev.quirks.table import error_of
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan

_ANY_ORDER = ("aten.index.Tensor", "aten.sym_size.int", "sym_size.int")


def refuse_hazards(program: ExportedProgram, plan: MethodPlan, strict: bool) -> None:
    """Refuse a plan that ExecuTorch would not carry out as it is meant.

    Args:
        program: The program that is partitioned.
        plan: Its plan.
        strict: What is wrong for some values only is an error, too.

    Raises:
        LoweringError: Something would be overwritten, transposed, or wrong on a portable kernel.
        PluginError: A partition has a compiler of its own.
    """
    _refuse_overwritten(program, plan)
    _refuse_misplaced(program)
    _refuse_transposed(program, plan)
    _refuse_loops(program, plan)
    _refuse_unplanned(program, plan)
    _refuse_unfit(program, plan, strict)
    for partition in plan.partitions:
        _refuse_compiler(partition)
        _refuse_fragments(program, partition)


def unclaimed(program: ExportedProgram, plan: MethodPlan) -> list[Node]:
    """What is left to portable kernels."""
    fallback = set(plan.fallback)
    return [node for node in program.graph.nodes if node.name in fallback]


def _refuse_compiler(partition: Partition) -> None:
    """ExecuTorch writes the name of the backend that compiled a delegate into the .pte, and has the
    first of its name compile."""
    if partition.compiler and not _equals_backend(partition):
        raise PluginError(
            partition.plugin,
            f"has {partition.compiler} compile {partition.where} for "
            f"{partition.backend_id}, which a partitioner can't ask of ExecuTorch",
            "lower with etdev.Lowerer",
        )
    if len(others := namesakes(compiler_of(partition))) > 1:
        raise ambiguous(partition, others)


def _equals_backend(partition: Partition) -> bool:
    """Whether ExecuTorch may have the backend itself compile, since the bytes are the same."""
    return any(
        compiler.__name__ == partition.compiler
        and getattr(compiler, "equals", None) == partition.backend_id
        for compiler in BackendDetails.__subclasses__()
    )


def _refuse_overwritten(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse what ExecuTorch's memory planning would overwrite."""
    position = {node.name: index for index, node in enumerate(program.graph.nodes)}
    late = {
        name: max(position[other] for other in partition.nodes)
        for partition in plan.partitions
        for name in partition.nodes
    }
    for result in all_overwritten_results(program, late):
        raise LoweringError(
            "partitioner",
            f"ExecuTorch would overwrite {result.name}, the result of a torch.cond, in the next "
            "one",
            "lower with etdev.Lowerer, which keeps it",
        )


def _refuse_misplaced(program: ExportedProgram) -> None:
    """Refuse views that ExecuTorch's memory planning would read in the wrong place."""
    for module in graph_modules(program.graph_module):
        for view in misplaced_views(module.graph, module._modules):
            raise LoweringError(
                "partitioner",
                f"ExecuTorch would read {view.all_input_nodes[0].name} in the wrong place, which "
                f"the body of a map or scan is given and {view.name} views{where(view)}",
                "lower with etdev.Lowerer, which copies it first",
            )


def _refuse_transposed(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse coordinates that ExecuTorch's own emission declares in another order than they are."""
    for node in unclaimed(program, plan):
        if op_name(node) == "aten.nonzero.default" and not _is_read_in_any_order(node):
            raise LoweringError(
                "partitioner",
                f"ExecuTorch would transpose {node.name}, the result of nonzero{where(node)}, or "
                "fail on it at run time",
                "lower with etdev.Lowerer, which returns it as it is",
            )


def _refuse_loops(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse loops that ExecuTorch's own emitter doesn't know."""
    for node in portable(program, plan):
        if node.target is torch.ops.higher_order.while_loop:
            raise LoweringError(
                "partitioner",
                f"ExecuTorch can't run while_loop, and no plugin took {node.name}{where(node)}",
                "unroll the loop, or write it with torch's scan and a fixed number of steps",
            )


def _refuse_unplanned(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse values that ExecuTorch's emission can't plan memory for."""
    claimed = {name for partition in plan.partitions for name in partition.nodes}
    for row, sizes in (
        (emission.UNBOUNDED_VALUES, emission.unbounded_sizes(program)),
        (emission.UNORDERED_STRIDES, emission.unordered_strides(program)),
    ):
        found = [size for size in sizes if size.name not in claimed]
        if found and row.in_loop:
            raise error_of(row.in_loop, plan.method, found, "partitioner")


def _is_read_in_any_order(nonzero: Node) -> bool:
    """Whether coordinates are of one dimension, and no kernel sees in which order they are."""
    if nonzero.all_input_nodes[0].meta["val"].dim() > 1:
        return False
    return all(user.op == "output" or op_name(user) in _ANY_ORDER for user in nonzero.users)


def _refuse_unfit(program: ExportedProgram, plan: MethodPlan, strict: bool) -> None:
    """Refuse by name what portable kernels can't do, also in branches, which no plugin claims."""
    refuse_unclaimed("partitioner", [plan], "lower with etdev.Lowerer, which computes it otherwise")
    misread = set(orders.misread(program))
    for module in graph_modules(program.graph_module):
        misread.update(mixing_convolutions(module.graph))
    for node in portable(program, plan):
        if node in misread or orders.miswritten(node):
            raise LoweringError(
                "partitioner",
                f"the portable kernel of {op_name(node)} fails or is wrong for what {node.name} "
                f"gives it{where(node)}",
                "lower with etdev.Lowerer, which computes it with other ops",
            )
    for entry in plan.ledger:
        if reluctance := entry.reluctance:
            place = f" at {entry.line}" if entry.line else ""
            what = f"{entry.op} ({entry.node}){place}: {reluctance}"
            say(strict, what, "etdev.Lowerer writes it with other ops")


def say(strict: bool, what: str, cure: str) -> None:
    """Warn, or refuse if this is strict."""
    error = LoweringError("partitioner", what, cure)
    if strict:
        raise error
    warnings.warn(str(error), EtdevWarning, stacklevel=4)


def portable(program: ExportedProgram, plan: MethodPlan) -> Iterator[Node]:
    """The nodes of a program that portable kernels run."""
    yield from unclaimed(program, plan)
    for module in graph_modules(program.graph_module):
        if module is not program.graph_module:
            yield from module.graph.nodes


def outside(program: ExportedProgram, plan: MethodPlan) -> set[str]:
    """Constants that delegates are given, since ExecuTorch can't copy what a list has for each."""
    nodes = {node.name: node for node in program.graph.nodes}
    outside = set()
    for partition in plan.partitions:
        for constant in partition.constants:
            readers = [] if not constant.inside else list(nodes[constant.name].users)
            apart = any(reader.name not in partition.nodes for reader in readers)
            direct = [n for n in readers if nodes[constant.name] in (*n.args, *n.kwargs.values())]
            if not apart or len(direct) == len(readers):
                continue
            if direct:
                raise LoweringError(
                    "partitioner",
                    f"ExecuTorch can't copy {constant.target!r} for each partition that reads it, "
                    "since one reads it in a list",
                    "lower with etdev.Lowerer, or register a clone of it",
                )
            outside.add(constant.name)
    return outside


def _refuse_fragments(program: ExportedProgram, partition: Partition) -> None:
    """Refuse weights that are a part of something larger, which backends store from its start."""
    values = {**program.constants, **program.state_dict}
    for constant in partition.constants:
        if constant.inside and values[constant.target].storage_offset():
            raise LoweringError(
                "partitioner",
                f"{constant.target!r} is a part of a larger tensor, which {partition.backend_id} "
                "may store instead of it",
                "lower with etdev.Lowerer, or register a clone of it",
            )
