"""The composition as one ExecuTorch Partitioner, for code that calls ExecuTorch itself."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.composition import Composition, compose
from etdev.delegate.control_flow import all_overwritten_results
from etdev.edge import branches, kernels, orders, state
from etdev.edge.keep_whole import Wishes, wishers
from etdev.errors import EtdevWarning, LoweringError, PluginError
from etdev.graph.layout import with_contiguous_weights
from etdev.graph.nodes import op_name
from etdev.graph.ops import edge_name
from etdev.graph.scalars import rounded_scalars, with_exact_scalars
from etdev.graph.source import where
from etdev.registry import Registry
from etdev.runtime.kernels import has_kernel
from etdev.schema.budget import Budget
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan, Partition


def partitioner(
    plugins: Sequence[object] | None = None,
    *,
    method: str = "forward",
    registry: Registry | str | os.PathLike[str] | None = None,
    devices: Mapping[str, Any] | None = None,
    pins: Sequence[Pin | Mapping[str, Any]] | None = None,
    limits: Mapping[str, Limits | Mapping[str, Any]] | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    strict: bool | None = None,
) -> ComposedPartitioner:
    """All plugins as one Partitioner: several backends and devices, decided once.

    ExecuTorch's own loop then splits and compiles, so this is no faster than it; `Lowerer` is.
    ExecuTorch's own emission follows too: with `enable_non_cpu_memory_planning` off it labels a
    tensor that two devices read for one of them, which `Lowerer` refuses.

    Args:
        method: The method it partitions, since ExecuTorch doesn't tell a partitioner. For several
            methods give ExecuTorch a dict with a partitioner for each.
        plugins: As for `Lowerer`, and so are the others.

    Example:
        to_edge_transform_and_lower(program, partitioner=[etdev.partitioner()])
    """
    composition = compose(
        plugins,
        registry=registry,
        devices=devices,
        pins=pins,
        limits=limits,
        budget=budget,
        strict=strict,
    )
    return ComposedPartitioner(composition, method)


class ComposedPartitioner(Partitioner):  # type: ignore[misc]
    """What `etdev.partitioner` returns. `plan` holds the last decision."""

    def __init__(self, composition: Composition, method: str) -> None:
        super().__init__()
        self.plan: MethodPlan | None = None
        self._composition = composition
        self._method = method
        self._kept: set[str] = set()
        self._zero: set[str] = set()

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Weights in the order that backends read, and numbers that ExecuTorch would round.

        ExecuTorch 1.4 doesn't ask for it.
        """
        return with_exact_scalars(with_contiguous_weights(exported_program))

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        """The wishes of all plugins."""
        ops, wanted = branches.whole_ops(
            ep, lambda program: Wishes(program, self._method, self._composition.plugins)
        )
        if ep.dialect != "EDGE":
            _refuse_rounded(ep)
        self._kept |= {edge_name(op) for op in ops}
        # What ExecuTorch has us partition has no data.
        self._zero |= {name for name, value in ep.state_dict.items() if state.is_zero(value)}
        return ops, wanted

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag every planned partition."""
        state.refuse_unkept(exported_program)
        state.mark_initial_values(exported_program, self._zero)
        # Without whole ops: a partitioner may not change the graph, so no plugin can be shown the
        # pieces of one.
        plan, _ = self._composition.planner().plan(exported_program, self._method, {})
        # A pin that matches nothing here may be for another method.
        self._composition.rules.check([plan])
        self._refuse_whole_ops(exported_program, plan)
        _refuse_overwritten(exported_program, plan)
        _refuse_transposed(exported_program, plan)
        _refuse_unfit(exported_program, plan)
        outside = _outside(exported_program, plan)
        self.plan = plan
        nodes = {node.name: node for node in exported_program.graph.nodes}
        annotations = self._composition.annotations(plan)
        specs = {}
        for partition in plan.partitions:
            _refuse_compiler(partition)
            _refuse_fragments(exported_program, partition)
            tag = f"etdev_{self._method}_{partition.name}"
            inside = [constant.name for constant in partition.constants if constant.inside]
            for name in (*partition.nodes, *(name for name in inside if name not in outside)):
                # A constant of several partitions keeps its first tag; ExecuTorch copies it.
                nodes[name].meta.setdefault("delegation_tag", tag)
            for name, meta in annotations.get(partition.name, {}).items():
                nodes[name].meta.update(meta)
            own = [CompileSpec(spec.key, spec.value) for spec in partition.compile_specs]
            specs[tag] = DelegationSpec(partition.backend_id, own)
        return PartitionResult(exported_program, specs)

    def _refuse_whole_ops(self, program: ExportedProgram, plan: MethodPlan) -> None:
        """Refuse by name what ExecuTorch would leave without a kernel.

        It keeps more whole than it is asked to: an op that is wanted whole in some places only.
        """
        for node in _unclaimed(program, plan):
            if op_name(node) in self._kept and (wishers(node) or not has_kernel(node)):
                raise PluginError(
                    "partitioner",
                    f"{op_name(node)} ({node.name}) was kept whole but no plugin claims it",
                    "lower with etdev.Lowerer, which decomposes it",
                )


def _unclaimed(program: ExportedProgram, plan: MethodPlan) -> list[Node]:
    """What is left to portable kernels."""
    fallback = set(plan.fallback)
    return [node for node in program.graph.nodes if node.name in fallback]


def _refuse_compiler(partition: Partition) -> None:
    """ExecuTorch writes the name of the backend that compiled a delegate into the .pte."""
    if partition.compiler and not _equals_backend(partition):
        raise PluginError(
            partition.plugin,
            f"has {partition.compiler} compile {partition.where} for "
            f"{partition.backend_id}, which a partitioner can't ask of ExecuTorch",
            "lower with etdev.Lowerer",
        )


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


def _refuse_transposed(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse coordinates that ExecuTorch's own emission declares in another order than they are."""
    for node in _unclaimed(program, plan):
        transposed = op_name(node) == "aten.nonzero.default"
        if transposed and node.all_input_nodes[0].meta["val"].dim() > 1:
            raise LoweringError(
                "partitioner",
                f"ExecuTorch would transpose {node.name}, the nonzero of a tensor with several "
                "dimensions",
                "lower with etdev.Lowerer, which returns it as it is",
            )


def _refuse_rounded(program: ExportedProgram) -> None:
    """Refuse numbers that ExecuTorch would make tensors that don't hold them."""
    for node, number in _rounded(program):
        raise LoweringError(
            "partitioner",
            f"ExecuTorch would round {number}, which {node.name} reads{where(node)}",
            "lower with etdev.Lowerer, which keeps it",
        )


def _rounded(program: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """What would be rounded, and the node that reads it."""
    for module in program.graph_module.modules():
        for node, index, _ in (
            rounded_scalars(module.graph) if isinstance(module, GraphModule) else ()
        ):
            yield node, node.args[index]


def _refuse_unfit(program: ExportedProgram, plan: MethodPlan) -> None:
    """Refuse by name what portable kernels can't do, also in branches, which no plugin claims."""
    unclaimed = set(plan.fallback)
    misread = set(orders.misread(program))
    for node in _portable(program, unclaimed):
        if kernels.fails(node) or node in misread:
            raise LoweringError(
                "partitioner",
                f"the portable kernel of {op_name(node)} fails or is wrong for what {node.name} "
                f"gives it{where(node)}",
                "lower with etdev.Lowerer, which computes it with other ops",
            )
        if kernels.fails_rarely(node):
            warnings.warn(
                f"partitioner: the portable kernel of {op_name(node)} is wrong for some values "
                f"of {node.name}, such as NaN or large integers{where(node)}; etdev.Lowerer is not",
                EtdevWarning,
                stacklevel=2,
            )


def _portable(program: ExportedProgram, unclaimed: Collection[str]) -> Iterator[Node]:
    """The nodes of a program that portable kernels run."""
    yield from (node for node in program.graph.nodes if node.name in unclaimed)
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule) and module is not program.graph_module:
            yield from module.graph.nodes


def _outside(program: ExportedProgram, plan: MethodPlan) -> set[str]:
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
