"""The composition as one ExecuTorch Partitioner, for code that calls ExecuTorch itself."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import ExportedProgram

from etdev.completion import completed
from etdev.edge import branches, state
from etdev.edge.branch_constants import with_given_constants
from etdev.edge.empties import with_made_empties
from etdev.edge.initial_values import is_zero, mark_initial_values
from etdev.edge.inputs import (
    refuse_fixed_sizes,
    refuse_strides,
    warn_of_unbounded_sizes,
    with_plain_strides,
)
from etdev.edge.keep_whole import Wishes, wishers
from etdev.edge.positions import refuse_unknown_slices, with_known_positions
from etdev.errors import PluginError
from etdev.graph.layout import with_contiguous_weights
from etdev.graph.nodes import op_name
from etdev.graph.ops import edge_name
from etdev.graph.source import where
from etdev.graph.symbols import widen_ranges
from etdev.hazards import outside, portable, refuse_hazards, say, unclaimed
from etdev.lowering.composition import Composition, compose
from etdev.misconversions import (
    refuse_numbers,
    refuse_wrong_losses,
)
from etdev.registry import Registry
from etdev.runtime.kernels import has_kernel, lacks_kernel
from etdev.schema.budget import Budget
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan
from etdev.schema.quirk import Stage


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
        program = with_given_constants(exported_program)
        program = with_plain_strides(self._method, with_made_empties(program))
        program = with_known_positions(program)
        program = self._composition.quirks.ahead(with_contiguous_weights(program), self._method)
        return completed(program, self._method, self._composition)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        """The wishes of all plugins."""
        ops, wanted = branches.whole_ops(
            ep, lambda program: Wishes(program, self._method, self._composition.delegating)
        )
        if ep.dialect != "EDGE":
            refuse_strides(self._method, ep)
            refuse_unknown_slices(ep)
            refuse_numbers(ep)
            self._composition.quirks.refuse(
                [Stage.SOURCE, Stage.ATEN, Stage.DECOMPOSED], ep, self._method
            )
            refuse_wrong_losses(ep)
            self._ranges = dict(ep.range_constraints)
        self._kept |= {edge_name(op) for op in ops}
        # What ExecuTorch has us partition has no data.
        self._zero |= {name for name, value in ep.state_dict.items() if is_zero(value)}
        return ops, wanted

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag every planned partition."""
        refuse_fixed_sizes(self._method, exported_program)
        warn_of_unbounded_sizes(self._method, exported_program)
        state.refuse_unkept(exported_program)
        mark_initial_values(exported_program, self._zero)
        # Without whole ops: a partitioner may not change the graph, so no plugin can be shown the
        # pieces of one.
        sized = self._with_given_ranges(exported_program)
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

    def _with_given_ranges(self, program: ExportedProgram) -> ExportedProgram:
        """A program that knows which sizes may be 0, with the nodes of another."""
        sized = copy.copy(program)
        sized._range_constraints = dict(program.range_constraints)
        widen_ranges(sized, self._ranges)
        return sized

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
