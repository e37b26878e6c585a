"""Which plugins are asked, in which order, under which rules."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from torch.export import ExportedProgram

import etdev.schema.report  # noqa: F401 (notebooks and rich show plans)
from etdev.edge.causes import name_node
from etdev.errors import EtdevError, EtdevWarning, PluginError, RegistryError, shown
from etdev.graph.expand import Expander, Unexpanding
from etdev.planner.partitioning import Verdicts
from etdev.planner.placement import check_here
from etdev.planner.planner import Planner
from etdev.planner.rules import Rules, rules
from etdev.planner.unclaimed import refuse_unclaimed
from etdev.quirks import QUIRKS
from etdev.quirks.rows import rows_of
from etdev.quirks.table import Table
from etdev.registry import answers
from etdev.registry.answers import Annotations
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry, load
from etdev.registry.selection import select
from etdev.schema.budget import Budget
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.quirk import Stage

# What to do about a node that no plugin takes.
NO_PLUGIN = (
    "write it with other ops or dtypes, export it with fixed sizes, add a plugin, or name the ops "
    "that your runtime has kernels for in EdgeCompileConfig(_core_aten_ops_exception_list=...)"
)


@frozen(eq=False)
class Composition:
    """What `Lowerer` and `etdev.partitioner` both need.

    Args:
        plugins: In claim order.
        registry: What they and the rules come from, where nothing else was given.
        rules: Devices, pins, limits and a budget.
        simplify: Whether what computes nothing new is taken out before plugins are asked.
        quirks: The faults of upstream that apply to the installed versions.
    """

    plugins: tuple[Plugin, ...]
    registry: Registry
    rules: Rules
    simplify: bool = True
    quirks: Table = field(factory=lambda: Table(QUIRKS))

    @property
    def by_name(self) -> dict[str, Plugin]:
        """The plugins by their names."""
        return {plugin.name: plugin for plugin in self.plugins}

    @property
    def delegating(self) -> tuple[Plugin, ...]:
        """The plugins that are not built in, in claim order."""
        return tuple(plugin for plugin in self.plugins if not plugin.builtin)

    def name_cause(self, programs: Mapping[str, ExportedProgram], error: Exception) -> None:
        """Say on which nodes of ATen programs a conversion failed, if that is known.

        Raises:
            EtdevError: It is.
        """
        for method, program in programs.items():
            self.quirks.explain(Stage.DECOMPOSED, program, method, error)
        name_node(programs.values(), error)

    def planner(
        self, expander: Expander | None = None, barred: Mapping[str, Verdicts] | None = None
    ) -> Planner:
        """Return a planner for the methods of one program; without an expander it changes none."""
        expander = expander or Unexpanding()
        return Planner(self.plugins, self.rules, expander, barred=barred or {})

    def plan(
        self,
        programs: Mapping[str, ExportedProgram],
        whole: Mapping[str, Mapping[str, Sequence[str]]],
        expander: Expander,
        barred: Mapping[str, Verdicts] | None = None,
    ) -> tuple[Plan, dict[str, ExportedProgram]]:
        """Plan every method, refuse what no plugin takes, and check the plans against the rules.

        Args:
            programs: Edge-dialect program of each method; they are not changed.
            whole: For each method the ops that were kept whole, with the plugins that wanted them.
            expander: Decomposes them.
            barred: For each method verdicts on nodes that a plugin can't have.

        Returns:
            The plan, and the programs that it is for.
        """
        planner = self.planner(expander, barred)
        self.rules.check_methods(programs)
        plans, decided = [], {}
        for name in sorted(programs):
            plan, decided[name] = planner.plan(programs[name], name, whole[name])
            plans.append(plan)
        refuse_unclaimed("plan", plans, NO_PLUGIN)
        self.rules.check_matched(planner.matched)
        self.rules.check(plans)
        asked = tuple((plugin.name, plugin.version) for plugin in self.plugins)
        return Plan(tuple(plans), asked), decided

    def check_fit(self, plan: Plan) -> None:
        """Refuse a plugin that owns partitions and can't compile on this machine.

        Raises:
            PluginError: There is one; the text has its reason.
            DeviceError: This is strict, and one has partitions on a device that is not here.
        """
        for plugin in self.plugins:
            own = [partition for partition in plan.partitions if partition.plugin == plugin.name]
            if not own:
                continue
            probed = answers.probe(plugin)
            if probed.unfit:
                what = f"can't compile here: {probed.unfit}"
                raise PluginError(plugin.name, what, self._without(plugin))
            check_here(own, probed, self.rules.strict)

    def _without(self, plugin: Plugin) -> str:
        """What to do about a plugin that can't compile here."""
        # If it is alone, the one that compiles everywhere.
        others = [p.name for p in self.plugins if p is not plugin and not p.builtin] or ["cpu"]
        named = ", ".join(f'"{name}"' for name in others)
        words = " ".join(f"--plugin {name}" for name in others)
        cure = f"to lower without it name the others, plugins=[{named}] or {words}"
        return f"planning works here; {cure}"

    def annotations(self, plan: MethodPlan) -> dict[str, Annotations]:
        """What the owner of each partition tells its compiler, for those that do, by partition."""
        owners = self.by_name
        all_notes = {p.name: answers.annotate(owners[p.plugin], p) for p in plan.partitions}
        return {name: notes for name, notes in all_notes.items() if notes}


def compose(
    plugins: Sequence[object] | None = None,
    *,
    registry: Registry | str | os.PathLike[str] | None = None,
    devices: Mapping[str, Any] | None = None,
    pins: Sequence[Pin | Mapping[str, Any]] | None = None,
    limits: Mapping[str, Limits | Mapping[str, Any]] | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    strict: bool | None = None,
    simplify: bool | None = None,
) -> Composition:
    """A composition of what is given and what the registry says; the arguments are Lowerer's.

    Raises:
        RegistryError: The registry can't be read.
        PluginError: A plugin is missing or broken, or a pin or limit can't be read.
        DeviceError: A device can't be read.
        BudgetError: The budget can't be read.
    """
    for name, switch in (("strict", strict), ("simplify", simplify)):
        if switch not in (True, False, None):
            raise EtdevError(name, f"is {shown(switch)}", "give True, False, or None")
    table = registry if isinstance(registry, Registry) else _load(registry)
    chosen = tuple(select(table, plugins))
    # A registry that wants none at all has its way without a word.
    meant = not table.entries and table.unlisted == "ignore"
    if plugins is None and all(plugin.builtin for plugin in chosen) and not meant:
        what = "no plugin is installed, so that everything runs on portable kernels"
        warnings.warn(f"{what}; pip install etdev-cpu", EtdevWarning, stacklevel=3)
    own = rules(
        table,
        [plugin.name for plugin in chosen],
        devices=devices,
        pins=pins,
        limits=limits,
        budget=budget,
        strict=strict,
    )
    for plugin in chosen:
        plugin.limits = own.limits_of(plugin.name)
    simplifies = table.simplify if simplify is None else simplify
    quirks = Table([row for _, row in rows_of(chosen)])
    return Composition(chosen, table, own, simplifies, quirks)


def _load(path: str | os.PathLike[str] | None) -> Registry:
    if not isinstance(path, (str, os.PathLike, type(None))):
        cure = "give a Registry, or the path of a registry.toml"
        raise RegistryError("registry", f"is {shown(path)}", cure)
    return load(None if path is None else Path(path))
