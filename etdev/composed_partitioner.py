"""The composition as one ExecuTorch Partitioner, for code that calls ExecuTorch itself.

ExecuTorch has a partitioner rewrite the ATen program, then converts it, and then has the edge
program partitioned, which may not be changed. So the program is first converted as `Lowerer` would
and written in ATen again; its quirks that remain are refused once the edge program is planned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import ExportedProgram

from etdev.completion import completed, given_constants
from etdev.delegate.backends import unasked
from etdev.delegate.split import Split
from etdev.edge.shared_state import shared_states
from etdev.errors import BudgetError, LoweringError, PluginError, warn_or_raise
from etdev.graph.nodes import calls_in, op_name
from etdev.graph.ops import edge_name
from etdev.graph.symbols import fake_mode, keep_ranges
from etdev.lowering.composition import Composition, compose
from etdev.planner.checks import check_claimed, check_plans
from etdev.planner.partitioning import Verdicts
from etdev.quirks.buffers import initial_values, is_zero, mark_initial
from etdev.quirks.sizes import narrowed_ranges, widen
from etdev.registry import Registry
from etdev.registry.keep_whole import KeepWholeRequests
from etdev.runtime.kernels import has_kernel
from etdev.schema.limits import Budget, Limits
from etdev.schema.method import Method
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.stages import EMIT, EXPORT, PLAN_MEMORY, SPLIT, VALIDATE

_PLANNED = (SPLIT, EMIT, PLAN_MEMORY)
# The partitioners that ExecuTorch has given a program to, and not yet asked for its partitions.
_BEGUN: WeakSet[ComposedPartitioner] = WeakSet()


def partitioner(  # noqa: PLR0913 (one argument for each setting of registry.toml)
    plugins: Sequence[object] | None = None,
    *,
    method: str = "forward",
    registry: Registry | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    devices: Mapping[str, Any] | None = None,
    pins: Sequence[Pin | Mapping[str, Any]] | None = None,
    limits: Mapping[str, Limits | Mapping[str, Any]] | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    strict: bool | None = None,
    share_state: bool | None = None,
    on_failure: str | None = None,
) -> ComposedPartitioner:
    """Return one Partitioner for all plugins: several backends and devices, decided once.

    ExecuTorch then splits, compiles and emits, which takes longer than a `Lowerer`, and without its
    `prepare`, `simplify`, `compile_context`, cache, `jobs`, listener, lock, audit and `verify`.
    With `enable_non_cpu_memory_planning` off ExecuTorch labels a tensor that two devices read for
    one of them, which `Lowerer` refuses.

    Args:
        plugins: As for `Lowerer`.
        method: The method that it partitions, which ExecuTorch doesn't pass to a partitioner. For
            several methods give ExecuTorch a dict with a partitioner for each.
        registry: As for `Lowerer`, like the others.
        devices: Devices per plugin.
        pins: Pins of nodes.
        limits: Limits per plugin.
        budget: The budget for portable kernels; `runtime_bytes` is refused, because ExecuTorch
            emits the program.
        strict: Refuse what would only be warned of.
        share_state: False if each method may have its own copy of a buffer that several methods
            share, as ExecuTorch's memory planning makes them; else that is refused.
        on_failure: As for `Lowerer`; each partition is compiled before ExecuTorch compiles it. None
            does so where the registry has `fallback`; else a compiler's own exception is raised.

    Example:
        to_edge_transform_and_lower(program, partitioner=[etdev.partitioner()])
    """
    # By the names of the fields of `Options`; some are arguments.
    arguments = {**locals()}
    if not hasattr(Partitioner, "transform_for_pre_decomposition"):
        what = "this ExecuTorch doesn't ask a partitioner to change the program first"
        raise LoweringError("partitioner", what, "install executorch>=1.5, or use etdev.Lowerer")
    composition = compose(plugins, registry, arguments)
    options = composition.options
    if options.budget and options.budget.runtime_bytes:
        what = "runtime_bytes can't be checked by a partitioner"
        raise BudgetError("budget", what, "leave it out, or use etdev.Lowerer")
    compiles = on_failure is not None or options.falls_back
    return ComposedPartitioner(composition, method, compiles)


class ComposedPartitioner(Partitioner):  # type: ignore[misc]
    """The result of `etdev.partitioner`. `plan` holds the last decision."""

    def __init__(self, composition: Composition, method: str, compiles: bool) -> None:
        super().__init__()
        self.plan: MethodPlan | None = None
        self._composition = composition
        self.method = method
        # Before ExecuTorch compiles them.
        self._compiles = compiles
        self._barred: dict[str, Verdicts] = {}
        self._kept: set[str] = set()
        self._zero: set[str] = set()
        self._ranges: dict[Any, Any] = {}
        self.begun: list[ExportedProgram] = []

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Return an ATen program that ExecuTorch converts as `Lowerer` would."""
        self.begun.append(exported_program)
        _BEGUN.add(self)
        if self._composition.options.share_state:
            self._refuse_shared_state()
        source = Method(self.method, exported_program)
        self._composition.quirks.refuse([EXPORT], source, self.method)
        self._barred = {}
        _, program = self._planned(
            lambda own: completed(exported_program, self.method, own, self._barred, self._compiles)
        )
        return program

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        """Return the ops that plugins want whole."""
        # ExecuTorch takes the data out of the program that is partitioned.
        self._zero |= {name for name, value in ep.state_dict.items() if is_zero(value)}
        # ExecuTorch asks again with the edge program, to complain about whole ops that were not
        # delegated. The plan takes care of those.
        if ep.dialect == "EDGE":
            return [], None
        # Formulas of plugins, for ops that they want decomposed, were applied before.
        requests = KeepWholeRequests(ep, self.method, self._composition.plugins)
        present = {node.target for node in calls_in(ep.graph_module)}
        ops = [op for op in requests.whole if op in present]
        self._ranges = dict(ep.range_constraints)
        self._kept |= {edge_name(op) for op in ops}
        return ops, requests.mark if ops else None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes and constants of every planned partition."""
        self.begun.clear()
        program, quirks = exported_program, self._composition.quirks
        quirks.refuse([VALIDATE], program, self.method)
        mark_initial(list(initial_values(program, self._zero)))
        # Without whole ops: a partitioner may not change the graph, so no plugin can be shown the
        # pieces of one.
        sized = widen(program, narrowed_ranges(program, self._ranges))
        plan, _ = self._planned(
            lambda own: own.planner(None, self._barred).plan(sized, self.method, {})
        )
        # A pin that matches nothing here may be for another method.
        check_plans(self._composition.options, [plan])
        self._composition.check_here(Plan((plan,)))
        self._refuse_whole_ops(program, plan)
        cure = "lower with etdev.Lowerer, which computes it otherwise"
        check_claimed("partitioner", [plan], cure)
        self._refuse_given(program, plan)
        quirks.refuse(_PLANNED, Split(program, plan.partitions).uncompiled(), self.method)
        self._warn(plan)
        self.plan = plan
        return self._tagged(program, plan)

    def _planned(
        self, plan: Callable[[Composition], tuple[MethodPlan, ExportedProgram]]
    ) -> tuple[MethodPlan, ExportedProgram]:
        """Plan with the plugins that can compile here, and in ExecuTorch's own loop."""
        if not self._composition.probed:
            self._composition = self._composition.fit(self._composition.options.falls_back)
        planned = plan(self._composition)
        while faults := unasked(planned[0].partitions):
            cure = "; ".join(fault.cure for fault in faults)
            self._composition = self._composition.leave_out(faults, cure=cure)
            planned = plan(self._composition)
        # ExecuTorch converts or compiles next, by traces of its own.
        keep_ranges(fake_mode(planned[1].graph.nodes))
        return planned

    def _refuse_shared_state(self) -> None:
        """Refuse state that methods share; ExecuTorch has begun with all before it partitions."""
        begun = {f"{one.method} {id(program)}": program for one in _BEGUN for program in one.begun}
        if states := shared_states(begun):
            self.begun.clear()
            target = next(iter(states[0].targets.values()))
            what = f"methods share buffer {target!r}, and ExecuTorch gives each method its own"
            cure = "lower with etdev.Lowerer, or accept that with share_state=False"
            raise LoweringError("partitioner", what, cure)

    def _tagged(self, program: ExportedProgram, plan: MethodPlan) -> PartitionResult:
        given = given_constants(program, plan)
        nodes = {node.name: node for node in program.graph.nodes}
        annotations = self._composition.annotations(plan)
        specs = {}
        for partition in plan.partitions:
            tag = f"etdev_{self.method}_{partition.name}"
            inside = [constant.name for constant in partition.constants if constant.inside]
            for name in (*partition.nodes, *(name for name in inside if name not in given)):
                # A constant of several partitions keeps its first tag; ExecuTorch copies it.
                nodes[name].meta.setdefault("delegation_tag", tag)
            for name, meta in annotations.get(partition.name, {}).items():
                nodes[name].meta.update(meta)
            own = [CompileSpec(spec.key, spec.value) for spec in partition.compile_specs]
            specs[tag] = DelegationSpec(partition.backend_id, own)
        return PartitionResult(program, specs)

    def _refuse_whole_ops(self, program: ExportedProgram, plan: MethodPlan) -> None:
        """Refuse an op that was kept whole for a plugin, which doesn't claim it.

        ExecuTorch keeps an op whole everywhere if it is wanted whole in some places.
        """
        fallback = set(plan.fallback)
        for node in program.graph.nodes:
            whole = node.name in fallback and op_name(node) in self._kept
            if whole and not has_kernel(node):
                what = f"{op_name(node)} ({node.name}) was kept whole but no plugin claims it"
                cure = "lower with etdev.Lowerer, which decomposes it"
                raise PluginError("partitioner", what, cure)

    def _refuse_given(self, program: ExportedProgram, plan: MethodPlan) -> None:
        """Refuse a constant that ExecuTorch would have to copy to a device at each call."""
        given = given_constants(program, plan)
        for partition in plan.partitions:
            for constant in partition.constants:
                away = not partition.device.memory.is_cpu
                if away and constant.name in given and not constant.mutated:
                    what = f"gives {partition.where} the constant {constant.target!r} as an input, "
                    what += f"which ExecuTorch can't copy to {partition.device}"
                    raise PluginError(partition.plugin, what, "lower with etdev.Lowerer")

    def _warn(self, plan: MethodPlan) -> None:
        """Warn of kernels that are wrong for some values, or refuse them under `strict`."""
        for entry in (e for e in plan.ledger if e.falls_back and e.caveat):
            place = f" at {entry.line}" if entry.line else ""
            what = f"{entry.op} ({entry.node}){place}: {entry.caveat}"
            error = LoweringError("partitioner", what, "etdev.Lowerer writes it with other ops")
            warn_or_raise(error, self._composition.options.strict)
