"""Emission: ExecuTorch's own passes to the .pte, corrected where they get devices wrong."""

from __future__ import annotations

import copy
import dataclasses
import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import DeviceError, EtdevError
from etdev.graph.nodes import delegate_device
from etdev.graph.symbols import unbound
from etdev.pte.artifact import MethodArtifact
from etdev.pte.audit import audit
from etdev.pte.control_flow import refuse_loops
from etdev.pte.emission_pass import EmissionPass
from etdev.pte.planning import planning
from etdev.pte.read import methods_of
from etdev.pte.signatures import Settling
from etdev.pte.transfers import MergeCopies, Skips
from etdev.schema.device import CPU, Device
from etdev.schema.plan import Plan
from etdev.schema.quirk import Quirks, Stage


@frozen(eq=False)
class Emitted:
    """A program ready to be written.

    Args:
        program: ExecuTorch's manager of it.
        skipping: Whether the caller makes some copies between devices, by method.
        planned_devices: Memory was planned per device.
    """

    program: ExecutorchProgramManager
    skipping: Mapping[str, bool]
    planned_devices: bool

    def audit(self, plan: Plan, methods: Sequence[MethodArtifact], who: str) -> None:
        """Compare the emitted program, or what was read back, with the plan; see `audit`."""
        audit(plan, methods, who, self.skipping, self.planned_devices)


def emit(
    manager: EdgeProgramManager,
    plan: Plan,
    config: ExecutorchBackendConfig | None,
    quirks: Quirks,
) -> Emitted:
    """Plan memory, emit a program and audit it.

    Args:
        manager: The delegated programs; `to_executorch` consumes it.
        plan: The plan of the program.
        config: The caller's; not changed.
        quirks: The faults of upstream that are fixed or named.

    Raises:
        DeviceError: The config can't be honoured with the devices of the plan.
        AuditError: What came out is not what was planned.
    """
    config = config or ExecutorchBackendConfig()
    skips = {method.method: _skips(config, method.method) for method in plan.methods}
    away = any(method.copies for method in plan.methods)
    if away and not config.enable_non_cpu_memory_planning:
        for name, skip in skips.items():
            _refuse_two_labels(name, manager.exported_program(name), skip)
    programs = [manager.exported_program(name) for name in manager.methods]
    for delegated in programs:
        refuse_loops(delegated.graph_module)
    completed, settling = _completed(config, skips, away, quirks), Settling(programs)
    completed.passes = [settling, *completed.passes]
    with (
        quirks.during(Stage.PLANNED, programs),
        unbound(*programs),
        warnings.catch_warnings(),
        settling.during(),
    ):
        # The initial state of buffers is complete, see edge/initial_values.py.
        warnings.filterwarnings("ignore", message="Mutation on a buffer in the model is detected")
        try:
            program = manager.to_executorch(completed)
        except EtdevError:
            raise
        except Exception as error:
            for name in manager.methods:
                quirks.explain(Stage.EMIT, manager.exported_program(name), name, error)
            raise
    emitted = Emitted(
        program,
        {name: skip != Skips() for name, skip in skips.items()},
        config.enable_non_cpu_memory_planning,
    )
    emitted.audit(plan, methods_of(emitted.program.executorch_program), "the emitted program")
    return emitted


def _completed(
    config: ExecutorchBackendConfig, skips: Mapping[str, Skips], away: bool, quirks: Quirks
) -> ExecutorchBackendConfig:
    """The caller's config with our passes, and with memory planning that fits the skips.

    The evaluation of symbolic shapes is the first pass after ExecuTorch's device pass that a config
    can replace, and it can be a different one for each method.
    """
    merging = away and config.enable_non_cpu_memory_planning
    passes: dict[str, Any] = {
        name: EmissionPass(quirks, _own(config.sym_shape_eval_pass, name), name) for name in skips
    }
    if not merging:
        return dataclasses.replace(
            config,
            sym_shape_eval_pass=passes,
            memory_planning_pass=planning(config.memory_planning_pass),
        )
    memory = {name: _own(config.memory_planning_pass, name) for name in skips}
    return dataclasses.replace(
        config,
        sym_shape_eval_pass={n: MergeCopies(passes[n], skip) for n, skip in skips.items()},
        memory_planning_pass=planning(
            {n: _unallocated(memory[n], s) for n, s in skips.items()}
            if any(skip.inputs or skip.outputs for skip in skips.values())
            else config.memory_planning_pass
        ),
        # Ours leaves out copies per input and per output, theirs refuses a shared input.
        propagate_device_config=PropagateDeviceConfig(),
    )


def _own(value: Any, method: str) -> Any:
    """A method's value of a setting that may be given per method."""
    return value[method] if isinstance(value, dict) else value


def _unallocated(memory: Any, skips: Skips) -> Any:
    """A memory planning pass that leaves skipped inputs or outputs to the caller.

    If it planned them, the runtime would copy the caller's device memory with a host memcpy.
    """
    planned = copy.copy(memory)
    if skips.inputs:
        planned.alloc_graph_input = False
    if skips.outputs:
        planned.alloc_graph_output = False
    return planned


def _skips(config: ExecutorchBackendConfig, method: str) -> Skips:
    setting = config.propagate_device_config
    if isinstance(setting, dict):
        setting = setting.get(method, PropagateDeviceConfig())
    flags = (setting.skip_h2d_for_method_inputs, setting.skip_d2h_for_method_outputs)
    # ExecuTorch documents a dict per method here, and reads any that isn't empty as True.
    inputs, outputs = (
        bool(flag.get(method, False)) if isinstance(flag, dict) else bool(flag) for flag in flags
    )
    return Skips(inputs, outputs)


def _refuse_two_labels(method: str, program: ExportedProgram, skips: Skips) -> None:
    """Refuse a tensor that needs two labels: without device planning it can have one only."""
    who, cure = f"method {method}", "leave enable_non_cpu_memory_planning on"
    if skips != Skips():
        raise DeviceError(who, "copies can't be skipped without device memory planning", cure)
    for node in program.graph.nodes:
        labels = {device for device in map(_label, (node, *node.users)) if device is not None}
        if isinstance(node.meta.get("val"), torch.Tensor) and len(labels) > 1:
            named = " and ".join(sorted(map(str, labels)))
            raise DeviceError(
                who,
                f"{node.name} is needed on {named}, and without device memory planning it can "
                "have one label only",
                cure,
            )


def _label(node: Node) -> Device | None:
    """Where a node wants the values it reads and writes; None if it may be anywhere."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return _label(node.all_input_nodes[0])
    if node.target is not executorch_call_delegate:
        return CPU
    return delegate_device(node)
