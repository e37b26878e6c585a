"""The loop: from a model to a plan, and from the plan to a .pte."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, frozen
from executorch.exir import EdgeProgramManager
from torch.export import ExportedProgram

from etdev import registry
from etdev.delegate.compile import compile_all
from etdev.delegate.split import split
from etdev.edge.conversion import Conversion, Settings, rebuilt
from etdev.edge.keep_whole import take_marks
from etdev.edge.source import Method, methods_of
from etdev.errors import EtdevWarning, PluginError
from etdev.graph.expand import Expander
from etdev.lowered import Lowered
from etdev.planner import placement
from etdev.planner.placement import Placement
from etdev.planner.planner import Planner
from etdev.planner.rules import Control, control
from etdev.registry import Registry, selection
from etdev.registry.annotations import annotations_of
from etdev.registry.plugin import Plugin
from etdev.schema.budget import Budget
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import Partition, Plan
from etdev.stages import Listener, Stages, guarded


@frozen(eq=False)
class Decision:
    """A plan, the programs it is for, and what they come from.

    Args:
        plan: What was decided.
        programs: Edge-dialect program per method, with exactly the plan's nodes.
        manager: ExecuTorch's manager of what the edge conversion gave.
        settings: How it was converted.
        expander: Decomposes what was kept whole.
        stages: Time of each stage so far.
    """

    plan: Plan
    programs: Mapping[str, ExportedProgram]
    manager: EdgeProgramManager
    settings: Settings
    expander: Expander
    stages: Stages

    def rebuilt(self, programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        """The manager with other programs."""
        config, constants = self.settings.compile_config, self.settings.constant_methods
        return rebuilt(self.manager, programs, config, constants)


@define(eq=False, init=False)
class Lowerer:
    """Lowers models with the plugins it has.

    Args:
        plugins: Plugin names and plugin objects in claim order; None takes what is installed, in
            the order of the registry.
        registry: A Registry or the path of one; None reads ./registry.toml, else etdev's own.
        devices: Device per plugin, `{"trt": "cuda:1"}`, or per plugin and method,
            `{"trt": {"forward": "cuda:1"}}`. Wins over the registry, which wins over the plugin.
        pins: Nodes that one plugin may have and no other, as `Pin` objects or mappings of their
            fields. They precede the registry's.
        limits: Limits per plugin, `{"cpu": {"min_nodes": 3}}`. Each wins over the registry's.
        budget: A `Budget` or a mapping of its fields, instead of the registry's.
        strict: Refuse devices that a plugin had to assume, and pins that match nothing or that
            their plugin doesn't keep; None leaves it to the registry.
        listener: Called with a stage and a detail as the work goes on.

    Raises:
        RegistryError: The registry can't be read.
        PluginError: A plugin is missing or broken, or a pin or limit can't be read.
        DeviceError: A device can't be read.
        BudgetError: The budget can't be read.

    Example:
        lowered = Lowerer().lower(module, (example,))
        lowered.save("model.pte")
    """

    plugins: tuple[Plugin, ...]
    registry: Registry
    placement: Placement
    control: Control
    listener: Listener | None

    def __init__(
        self,
        plugins: Sequence[object] | None = None,
        *,
        registry: Registry | str | os.PathLike[str] | None = None,
        devices: Mapping[str, Any] | None = None,
        pins: Sequence[Pin | Mapping[str, Any]] | None = None,
        limits: Mapping[str, Limits | Mapping[str, Any]] | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        strict: bool | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.registry = _registry(registry)
        self.plugins = tuple(_select(self.registry, plugins))
        strict = self.registry.strict if strict is None else strict
        self.placement = Placement(
            explicit=self._known(placement.pins(devices)),
            registry={entry.name: entry.devices for entry in self.registry.entries},
            strict=strict,
        )
        self.control = control(
            self.registry,
            [plugin.name for plugin in self.plugins],
            given_pins=pins,
            given_limits=limits,
            given_budget=budget,
            strict=strict,
        )
        self.listener = listener

    def plan(
        self,
        model: object,
        inputs: Any = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        settings: Settings | None = None,
    ) -> Plan:
        """Decide who runs what and where; needs no accelerator and compiles nothing.

        Args:
            model: An nn.Module, an ExportedProgram, the path of a .pt2 file, or a dict of method
                name to one of these or to a tuple (module, inputs[, dynamic_shapes]).
            inputs: Example inputs of a module.
            kwargs: Example inputs by keyword.
            dynamic_shapes: As `torch.export.export` takes them.
            settings: What ExecuTorch's conversion should do differently.

        Raises:
            SourceError: The model can't be loaded or exported.
            LoweringError: The edge conversion refused it.
            PluginError: A plugin failed or gave an impossible answer.
            PinError: Under `strict`, a pin matches nothing or its plugin doesn't keep it.
            BudgetError: More falls back to portable kernels than the budget allows.
        """
        return self.decide(
            model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, settings=settings
        ).plan

    def lower(
        self,
        model: object,
        inputs: Any = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        settings: Settings | None = None,
    ) -> Lowered:
        """Plan as `plan` does, then compile every partition.

        Raises:
            CompileError: A plugin is unfit to compile here, or its backend failed.
            EtdevError: As `plan`.
        """
        decided = self.decide(
            model, inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes, settings=settings
        )
        self._check_fit(decided.plan)
        join = self._compile(decided.plan, decided.programs, decided.stages)
        return Lowered(decided.plan, lambda: decided.rebuilt(join()), decided.stages)

    def decide(
        self,
        model: object,
        inputs: Any = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        settings: Settings | None = None,
    ) -> Decision:
        """Plan as `plan` does, and keep the programs that the plan is for."""
        stages = Stages(self.listener)
        settings = settings or Settings()
        expander = Expander(settings.compile_config)
        methods = methods_of(model, inputs, kwargs, dynamic_shapes)
        manager = self._to_edge(methods, settings, expander, stages)
        planner = Planner(self.plugins, self.placement, expander, self.control)
        plans, programs = [], {}
        self.placement.check_methods(manager.methods)
        with stages.stage("plan"):
            for name in sorted(manager.methods):
                program = manager.exported_program(name)
                found, programs[name] = planner.plan(program, name, take_marks(program))
                plans.append(found)
            self.control.check_matched(planner.matched)
            self.control.check(plans)
        asked = tuple((plugin.name, plugin.version) for plugin in self.plugins)
        plan = Plan(tuple(plans), asked)
        return Decision(plan, programs, manager, settings, expander, stages)

    def _to_edge(
        self,
        methods: Mapping[str, Method],
        settings: Settings,
        expander: Expander,
        stages: Stages,
    ) -> EdgeProgramManager:
        with stages.stage("export"):
            programs = {name: method.export() for name, method in methods.items()}
        conversion = Conversion(self.plugins, settings.compile_config, expander)
        with stages.stage("edge"):
            return guarded(
                "edge conversion",
                lambda: conversion.to_edge(
                    programs,
                    constant_methods=settings.constant_methods,
                    transform_passes=settings.transform_passes,
                    generate_etrecord=settings.generate_etrecord,
                ),
            )

    def _check_fit(self, plan: Plan) -> None:
        owners = {partition.plugin for partition in plan.partitions}
        for plugin in self.plugins:
            if plugin.name in owners and (reason := plugin.probe().unfit):
                raise PluginError(
                    plugin.name,
                    f"can't compile here: {reason}",
                    "planning works here; to lower without it name the others, "
                    'plugins=["cpu"] or --plugin cpu',
                )

    def _compile(
        self, plan: Plan, programs: Mapping[str, ExportedProgram], stages: Stages
    ) -> Callable[[], dict[str, ExportedProgram]]:
        """Compile everything; the result puts the methods together, afresh at every call."""

        def progress(done: int, total: int, partition: Partition) -> None:
            stages.say("compile", f"{done + 1}/{total} {partition.where}")

        with stages.stage("compile"):
            splits = {
                name: split(
                    program, plan[name].partitions, annotations_of(plan[name], self.plugins)
                )
                for name, program in programs.items()
            }
            lowered = compile_all(splits, self.plugins, progress)
        return lambda: {name: taken.join(lowered[name]) for name, taken in splits.items()}

    def _known(self, devices: Mapping[str, Any]) -> Mapping[str, Any]:
        names = [plugin.name for plugin in self.plugins]
        for name in devices:
            if name not in names:
                there = ", ".join(names) or "none"
                raise PluginError(
                    str(name), "is pinned to a device but not asked", f"the plugins are {there}"
                )
        return devices


def _registry(value: Registry | str | os.PathLike[str] | None) -> Registry:
    if isinstance(value, Registry):
        return value
    return registry.load(None if value is None else Path(value))


def _select(table: Registry, wanted: Sequence[object] | None) -> list[Plugin]:
    chosen = selection.select(table, wanted)
    if wanted is None and not chosen:
        warnings.warn(
            "no plugin is installed, so that everything runs on portable kernels; "
            "pip install etdev-cpu",
            EtdevWarning,
            stacklevel=3,
        )
    return chosen
