"""The composition as one ExecuTorch Partitioner, for code that calls ExecuTorch itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import ExportedProgram

from etdev.completion import completed
from etdev.edge import branches
from etdev.edge.keep_whole import Wishes, wishers
from etdev.errors import PluginError
from etdev.graph.nodes import op_name
from etdev.graph.ops import edge_name
from etdev.graph.source import where
from etdev.hazards import outside, portable, refuse_hazards, say, unclaimed
from etdev.lowering.composition import Composition, compose
from etdev.quirks.buffers import initial_values, is_zero, mark_initial
from etdev.quirks.sizes import narrowed_since, widen
from etdev.registry import Registry
from etdev.runtime.kernels import has_kernel, lacks_kernel
from etdev.schema.budget import Budget
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan
from etdev.schema.quirk import Stage

_ATEN = (Stage.SOURCE, Stage.ATEN, Stage.FUNCTIONAL, Stage.DECOMPOSED, Stage.LOOP)


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
        self._ranges: dict[Any, Any] = {}

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Inputs and weights in the order that the runtime and backends read, and what torch and
        ExecuTorch would not convert.

        ExecuTorch 1.4 doesn't ask for it.
        """
        program = self._composition.quirks.ahead(exported_program, self._method)
        return completed(program, self._method, self._composition)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        """The wishes of all plugins."""
        ops, wanted = branches.whole_ops(
            ep, lambda program: Wishes(program, self._method, self._composition.delegating)
        )
        if ep.dialect != "EDGE":
            self._composition.quirks.refuse(_ATEN, ep, self._method)
            self._ranges = dict(ep.range_constraints)
        self._kept |= {edge_name(op) for op in ops}
        # What ExecuTorch has us partition has no data.
        self._zero |= {name for name, value in ep.state_dict.items() if is_zero(value)}
        return ops, wanted

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag every planned partition."""
        self._composition.quirks.refuse([Stage.EDGE], exported_program, self._method)
        mark_initial(list(initial_values(exported_program, self._zero)))
        # Without whole ops: a partitioner may not change the graph, so no plugin can be shown the
        # pieces of one.
        sized = widen(exported_program, narrowed_since(exported_program, self._ranges))
        plan, _ = self._composition.planner().plan(sized, self._method, {})
        # A pin that matches nothing here may be for another method.
        self._composition.rules.check([plan])
        self._refuse_whole_ops(exported_program, plan)
        refuse_hazards(exported_program, plan, self._composition.rules.strict)
        self._say_missing(exported_program, plan)
        given = outside(exported_program, plan)
        self.plan = plan
        nodes = {node.name: node for node in exported_program.graph.nodes}
        annotations = self._composition.annotations(plan)
        specs = {}
        for partition in plan.partitions:
            tag = f"etdev_{self._method}_{partition.name}"
            inside = [constant.name for constant in partition.constants if constant.inside]
            for name in (*partition.nodes, *(name for name in inside if name not in given)):
                # A constant of several partitions keeps its first tag; ExecuTorch copies it.
                nodes[name].meta.setdefault("delegation_tag", tag)
            for name, meta in annotations.get(partition.name, {}).items():
                nodes[name].meta.update(meta)
            own = [CompileSpec(spec.key, spec.value) for spec in partition.compile_specs]
            specs[tag] = DelegationSpec(partition.backend_id, own)
        return PartitionResult(exported_program, specs)

    def _say_missing(self, program: ExportedProgram, plan: MethodPlan) -> None:
        """Say which ops no kernel computes; the .pte fails to load without it."""
        for node in filter(lacks_kernel, portable(program, plan)):
            what = f"the runtime has no kernel of {op_name(node)}{where(node)}"
            cure = "leave out that op, or give it to a plugin"
            say(self._composition.rules.strict, what, cure)

    def _refuse_whole_ops(self, program: ExportedProgram, plan: MethodPlan) -> None:
        """Refuse by name what ExecuTorch would leave without a kernel.

        It keeps more whole than it is asked to: an op that is wanted whole in some places only.
        """
        for node in unclaimed(program, plan):
            if op_name(node) in self._kept and (wishers(node) or not has_kernel(node)):
                raise PluginError(
                    "partitioner",
                    f"{op_name(node)} ({node.name}) was kept whole but no plugin claims it",
                    "lower with etdev.Lowerer, which decomposes it",
                )
