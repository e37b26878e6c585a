"""Emission of a .pte with ExecuTorch's passes, corrected where they get devices wrong."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    memory,
)
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from etdev.errors import AuditError
from etdev.files import write_atomically
from etdev.graph.nodes import graph_modules
from etdev.graph.symbols import unbound
from etdev.pte.artifact import MethodArtifact
from etdev.pte.audit import differences
from etdev.pte.deduplication import share
from etdev.pte.digest import reserve, seal
from etdev.pte.in_place import write_in_place
from etdev.pte.read import methods_of
from etdev.pte.shared_arena import SIZES, SharedArena
from etdev.pte.transfers import MergeCopies, Skips, check_labels
from etdev.schema.plan import Plan
from etdev.schema.quirk import Quirks
from etdev.schema.stages import PLAN_MEMORY
from etdev.upstream.edge import set_etrecord
from etdev.upstream.emission import PLANS_WRITES, external_data


@frozen(eq=False)
class Emitted:
    """A program ready to be written.

    Args:
        program: ExecuTorch's manager of it.
        skipping: For each method, whether its caller makes some copies between devices.
        planned_devices: Memory was planned per device.
        upper_bounds: Memory was planned for the largest sizes.
    """

    program: ExecutorchProgramManager
    skipping: Mapping[str, bool]
    planned_devices: bool
    upper_bounds: bool

    def audit(self, plan: Plan, methods: Sequence[MethodArtifact], who: str) -> None:
        """Compare the emitted program, or the one that was read back, with the plan."""
        if problems := differences(
            plan, methods, self.skipping, self.planned_devices, self.upper_bounds
        ):
            what = f"is not what was planned: {'; '.join(problems)}"
            raise AuditError(who, what, "a custom pass may have changed it; else report this")

    def write(self, path: Path) -> Path:
        """Write a .pte and, next to it, the .ptd files that ExecuTorch keeps data in.

        `net.pte` gets `net.NAME.ptd`, since backends give the data of every model the same name.
        """
        for name, data in external_data(self.program).items():
            beside = path.with_name(f"{path.stem}.{name.removesuffix('.ptd')}.ptd")
            write_atomically(beside, data.write_to_file)
        write_atomically(path, self.program.write_to_file)
        return path


class EmissionPass(PassBase):
    """A pass that applies the quirks of emission to a method, then the pass that it replaces."""

    def __init__(self, quirks: Quirks, then: PassBase, method: str) -> None:
        super().__init__()
        self._quirks, self._then, self._method = quirks, then, method

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Rewrite the memory specs and arguments in place."""
        return self._then(self._quirks.apply(PLAN_MEMORY, graph_module, self._method))


def add_etrecord(
    manager: EdgeProgramManager, exported: Mapping[str, ExportedProgram], edge: EdgeProgramManager
) -> None:
    """Add an ETRecord of ATen programs, and of edge programs before delegation, to a manager.

    `to_executorch` completes it.
    """
    try:
        from executorch.devtools.etrecord import ETRecord
    except ImportError:
        # ExecuTorch can be built without its developer tools.
        return
    # The public way to have a record, ExecuTorch's own conversion, copies all weights.
    record = ETRecord()
    record.add_exported_program(dict(exported))
    record.add_edge_dialect_program(edge)
    set_etrecord(manager, record)


def emit(
    manager: EdgeProgramManager, plan: Plan, config: ExecutorchBackendConfig | None, quirks: Quirks
) -> Emitted:
    """Plan memory, emit a program and audit it.

    `to_executorch` consumes the manager; the caller's config is not changed.

    Raises:
        DeviceError: The config can't be honoured with the devices of the plan.
        AuditError: The emitted program differs from the plan.
    """
    config = config or ExecutorchBackendConfig()
    reserve(manager)
    skips = {method.method: _skips(config, method.method) for method in plan.methods}
    away = any(method.copies for method in plan.methods)
    if away and not config.enable_non_cpu_memory_planning:
        for name, skip in skips.items():
            check_labels(name, manager.exported_program(name), skip)
    programs = [manager.exported_program(name) for name in manager.methods]
    for own in programs if PLANS_WRITES else ():
        write_in_place(own)
    arena = SharedArena([state for state in plan.state if state.shared])
    completed = _completed(config, skips, away, quirks, arena)
    # torch refuses to write to buffers that require gradients, as statistics of a batch norm may,
    # and traces the gradients of control flow. Other methods have the bytes of ExecuTorch's loop.
    plain = not any(
        program.graph_signature.buffers_to_mutate or len(graph_modules(program.graph_module)) > 1
        for program in programs
    )
    gradients = torch.set_grad_enabled(torch.is_grad_enabled() and plain)
    with gradients, unbound(*programs), warnings.catch_warnings():
        # The initial values of buffers are complete, see etdev/quirks/buffers.py.
        warnings.filterwarnings("ignore", message="Mutation on a buffer in the model is detected")
        program = manager.to_executorch(completed)
    share(program)
    seal(program)
    skipping = {name: skip != Skips() for name, skip in skips.items()}
    # A user's own pass may plan for the example's sizes.
    bounded = isinstance(config.sym_shape_eval_pass, ConstraintBasedSymShapeEvalPass)
    emitted = Emitted(program, skipping, config.enable_non_cpu_memory_planning, bounded)
    emitted.audit(plan, methods_of(emitted.program.executorch_program), "the emitted program")
    return emitted


def _completed(
    config: ExecutorchBackendConfig,
    skips: Mapping[str, Skips],
    away: bool,
    quirks: Quirks,
    arena: SharedArena,
) -> ExecutorchBackendConfig:
    """Return the caller's config with our passes, and with memory planning that fits the skips.

    The evaluation of symbolic shapes is the first pass after ExecuTorch's device pass that a config
    can replace, and it can be a different one for each method.
    """
    merging = away and config.enable_non_cpu_memory_planning
    shapes: dict[str, Any] = {
        name: EmissionPass(quirks, _own(config.sym_shape_eval_pass, name), name) for name in skips
    }
    needs = {
        name: (_own(config.memory_planning_pass, name), skip if merging else Skips())
        for name, skip in skips.items()
    }
    first, *others = needs.values()
    planning: Any
    if arena.states or any(own is not first[0] or skip != first[1] for own, skip in others):
        planning = {name: arena.planner(_planner(*need), name) for name, need in needs.items()}
    else:
        # One for all methods, since it may place state across methods when it has seen all.
        planning = _planner(*first)
    devices = config.propagate_device_config
    if merging:
        # MergeCopies skips copies per input and per output; ExecuTorch rejects a shared input.
        devices = PropagateDeviceConfig()
        shapes = {name: MergeCopies(name, shapes[name], skip) for name, skip in skips.items()}
    passes = {"sym_shape_eval_pass": shapes, "memory_planning_pass": planning}
    return dataclasses.replace(config, **passes, propagate_device_config=devices)


def _own(value: Any, method: str) -> Any:
    """Return a method's value of a setting that may be given per method."""
    return value[method] if isinstance(value, dict) else value


def _planner(given: Any, skips: Skips) -> Any:
    """Return a copy of a memory planning pass that plans no memory for skipped inputs or outputs.

    If it planned them, the runtime would copy the caller's device memory with a host memcpy. Its
    arenas have room for views, too, which ExecuTorch plans as large as their sources: a view of
    size `h*w//w` has a larger bound, and the runtime loads no tensor that may leave its arena.
    """
    planned = copy.copy(given)
    if skips.inputs:
        planned.alloc_graph_input = False
    if skips.outputs:
        planned.alloc_graph_output = False
    if run := getattr(planned, "run", None):
        planned.run = lambda module, signature: _with_views(run(module, signature))
    return planned


def _with_views(result: PassResult) -> PassResult:
    """Enlarge the arenas of a planned method to the bounds of its views."""
    sizes = result.graph_module.meta[SIZES]
    for module in graph_modules(result.graph_module):
        for view in module.graph.find_nodes(op="call_function", target=memory.view):
            if (spec := view.meta["spec"]).mem_id is not None:
                end = spec.mem_offset + spec.allocated_memory
                sizes[spec.mem_id] = max(sizes[spec.mem_id], end)
    return result


def _skips(config: ExecutorchBackendConfig, method: str) -> Skips:
    setting = config.propagate_device_config
    if isinstance(setting, dict):
        setting = setting.get(method, PropagateDeviceConfig())
    flags = (setting.skip_h2d_for_method_inputs, setting.skip_d2h_for_method_outputs)
    # ExecuTorch documents a dict per method here, and reads every non-empty one as True.
    inputs, outputs = (
        bool(flag.get(method, False)) if isinstance(flag, dict) else bool(flag) for flag in flags
    )
    return Skips(inputs, outputs)
