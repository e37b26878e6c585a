"""The composition: which plugins are asked, in which order, with which settings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import evolve, field, frozen
from torch.export import ExportedProgram

from etdev.delegate.split import Split
from etdev.edge.advice import bound_of, failed_pass
from etdev.errors import (
    CHAINED,
    EtdevError,
    EtdevWarning,
    LoweringError,
    PluginError,
    install_hint,
)
from etdev.graph.expand import Expander
from etdev.graph.symbols import fake_mode, keep_ranges
from etdev.lowering.storage import stored_again
from etdev.planner.checks import (
    check_asked,
    check_claimed,
    check_matched,
    check_methods,
    check_plans,
)
from etdev.planner.partitioning import Verdicts
from etdev.planner.placement import check_here
from etdev.planner.planner import Planner
from etdev.quirks import QUIRKS
from etdev.quirks.sharing import QUIRKS as SHARING
from etdev.quirks.table import Table, rows_of
from etdev.registry import answers
from etdev.registry.answers import Annotations
from etdev.registry.discovery import GROUP
from etdev.registry.extensions import candidates
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry, registry_of
from etdev.registry.selection import select
from etdev.runtime import runners
from etdev.schema.device import CPU, Probe
from etdev.schema.limits import Limits
from etdev.schema.options import Options, resolved
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.target import Target
from etdev.schema.tensors import SharedState
from etdev.upstream.shortcuts.collector import without_full_collections

# The advice about a node that no plugin takes.
NO_PLUGIN = (
    "write it with other ops or dtypes, export it with fixed sizes, add a plugin, or name the ops "
    "that your runtime has kernels for in EdgeCompileConfig(_core_aten_ops_exception_list=...)"
)


@contextmanager
def guarded(stage: str) -> Iterator[None]:
    """Turn errors of ExecuTorch into a LoweringError that names the stage."""
    try:
        yield
    except EtdevError:
        raise
    except Exception as error:
        what = f"ExecuTorch failed with {failed_pass(error)}"
        cure = "; ".join(filter(None, (bound_of(error), CHAINED)))
        raise LoweringError(stage, what, cure) from error


@frozen(eq=False)
class Composition:
    """The plugins, settings and quirks that `Lowerer` and `etdev.partitioner` share.

    Args:
        plugins: In claim order.
        options: The settings that count.
        given: The arguments alone, without the registry's settings.
        quirks: The faults of upstream that apply to the installed versions.
        named: Plugins that the user named, which may not be left out.
        probed: What each plugin finds on this machine, if it was asked.
    """

    plugins: tuple[Plugin, ...]
    options: Options
    given: Options
    quirks: Table = field(factory=lambda: Table(QUIRKS))
    named: frozenset[str] = frozenset()
    probed: Mapping[str, Probe] = field(factory=dict)

    @property
    def delegating(self) -> tuple[Plugin, ...]:
        """The plugins that are not built in, in claim order."""
        return tuple(plugin for plugin in self.plugins if not plugin.builtin)

    def planner(
        self, expander: Expander | None = None, barred: Mapping[str, Verdicts] | None = None
    ) -> Planner:
        """Return a planner for the methods of one program; without an expander it changes none."""
        expander = expander or Expander(table={})
        return Planner(self.plugins, self.options, expander, barred=barred or {})

    @without_full_collections()
    def plan(
        self,
        programs: Mapping[str, ExportedProgram],
        whole: Mapping[str, Mapping[str, Sequence[str]]],
        expander: Expander,
        barred: Mapping[str, Verdicts] | None = None,
        state: Sequence[SharedState] = (),
    ) -> tuple[Plan, dict[str, ExportedProgram]]:
        """Plan every method, refuse unclaimed nodes, and check the plans against the settings.

        By method, `programs` are in the edge dialect and are not changed, `whole` has the ops that
        were kept whole, with the plugins that wanted them, and `barred` verdicts on nodes that a
        plugin can't have. `state` are the buffers that methods share.
        """
        planner = self.planner(expander, barred)
        planner.shared = [each for each in state if each.shared]
        check_methods(self.given, self.options, programs)
        plans, decided = [], {}
        for name in sorted(programs):
            own, decided[name] = planner.plan(programs[name], name, whole[name])
            plans.append(own)
        check_claimed("plan", plans, NO_PLUGIN)
        check_matched(self.options, planner.matched)
        check_plans(self.options, plans)
        asked = tuple((plugin.name, plugin.version) for plugin in self.plugins)
        plan = Plan(tuple(plans), asked, tuple(state), tuple(stored_again(plans, decided)))
        return plan, decided

    def fit(self, tolerant: bool) -> Composition:
        """Return the composition of the plugins that can compile on this machine.

        The others are left out with a warning. One that the user named is an error unless
        `tolerant`, and so is each of them under `strict`.
        """
        probed = {plugin.name: answers.probe(plugin) for plugin in self.delegating}
        unfit = {name: probe.unfit for name, probe in probed.items() if probe.unfit}
        faults = [
            PluginError(name, f"can't compile here: {reason}", self._without(unfit))
            for name, reason in unfit.items()
        ]
        return evolve(self.leave_out(faults, tolerant), probed=probed)

    def leave_out(
        self, faults: Sequence[PluginError], tolerant: bool = False, cure: str = ""
    ) -> Composition:
        """Return the composition without the plugins that some errors are about, as `fit` says."""
        for fault in faults:
            if not tolerant and (fault.who in self.named or self.options.strict):
                raise fault
            text = f"{fault.who} is left out: it {fault.what}"
            warnings.warn(f"{text}; {cure}" if cure else text, EtdevWarning, stacklevel=5)
        names = {fault.who for fault in faults}
        plugins = tuple(plugin for plugin in self.plugins if plugin.name not in names)
        quirks = _quirks(plugins, self.options) if names else self.quirks
        return evolve(self, plugins=plugins, quirks=quirks)

    def check_here(self, plan: Plan) -> None:
        """Warn of partitions on a device that is not here, if another of its type is."""
        for name, probed in self.probed.items():
            own = [partition for partition in plan.partitions if partition.plugin == name]
            check_here(own, probed, self.options.strict)

    def fit_target(self, plan: Plan) -> Composition:
        """Return the composition of the plugins whose partitions the target can run.

        The others are left out with a warning; one that the user named is an error.
        """
        if not (target := self.options.target):
            return self
        lacking = runners.lacking(target, {each.backend_id for each in plan.partitions})
        reasons = {
            each.plugin: f"needs {each.backend_id}, which the target's ExecuTorch lacks"
            for each in plan.partitions
            if each.backend_id in lacking
        } | {
            each.plugin: f"needs the device {each.device}, which the target lacks"
            for each in plan.partitions
            if each.device not in (CPU, *target.devices)
        }
        cure = "name the other plugins, or a target that has it"
        faults = [PluginError(name, what, cure) for name, what in reasons.items()]
        return self.leave_out(faults) if faults else self

    def _without(self, unfit: Collection[str]) -> str:
        """Return the advice about plugins that can't compile here."""
        ready = [plugin.name for plugin in self.delegating if plugin.name not in unfit]
        if not ready and "cpu" not in candidates(GROUP):
            return f"planning works here; {install_hint('etdev-cpu')}, which compiles everywhere"
        # Without another one, it is the plugin that compiles everywhere.
        others = ready or ["cpu"]
        named = ", ".join(f'"{name}"' for name in others)
        words = f"--plugin {','.join(others)}"
        cure = f"to lower without it name the others, plugins=[{named}] or {words}"
        return f"planning works here; {cure}"

    def annotations(self, plan: MethodPlan) -> dict[str, Annotations]:
        """Return the annotations that owners make for their compilers, by partition."""
        owners = {plugin.name: plugin for plugin in self.plugins}
        return {p.name: answers.annotate(owners[p.plugin], p) for p in plan.partitions}

    def split(self, program: ExportedProgram, plan: MethodPlan) -> Split:
        """Return a program for each partition of a method, with the annotations of its owner."""
        # Emission traces delegates, also those that a cache or another process has compiled.
        keep_ranges(fake_mode(program.graph.nodes))
        return Split(program, plan.partitions, self.annotations(plan))


def compose(
    plugins: Sequence[object] | None,
    registry: Registry | Mapping[str, object] | str | os.PathLike[str] | None,
    arguments: Mapping[str, object],
) -> Composition:
    """Return the composition of explicit plugins and settings and of the registry."""
    table, target = registry_of(registry), arguments.get("target")
    if plugins is None and isinstance(target, Target) and target.plugins:
        plugins = target.plugins
    chosen = tuple(select(table, plugins))
    if plugins is None:
        _warn_without_plugins(chosen, table)
    given, options = resolved(arguments, Options()), resolved(arguments, table)
    check_asked(given, table, [plugin.name for plugin in chosen])
    for plugin in chosen:
        plugin.limits = options.limits.get(plugin.name, Limits())
    # It may be named where the registry leaves it out.
    options = evolve(options, portable=any(plugin.builtin for plugin in chosen))
    if plugins is None:
        listed = {entry.name for entry in table.entries if not entry.optional}
        named = listed | {*given.devices} | {pin.plugin for pin in given.pins}
    else:
        named = {plugin.name for plugin in chosen}
    return Composition(chosen, options, given, _quirks(chosen, options), frozenset(named))


def _warn_without_plugins(chosen: Sequence[Plugin], table: Registry) -> None:
    """Warn if portable kernels run everything, though the registry leaves out no plugin."""
    meant = not table.entries and table.unlisted == "ignore"
    if all(plugin.builtin for plugin in chosen) and not meant:
        what = "no plugin is installed, so that everything runs on portable kernels"
        warnings.warn(f"{what}; {install_hint('etdev-cpu')}", EtdevWarning, stacklevel=4)


def _quirks(plugins: Sequence[Plugin], options: Options) -> Table:
    """Return the rows of etdev and of plugins, without those about state if none is shared."""
    shares = options.share_state
    return Table([row for _, row in rows_of(plugins) if shares or row not in SHARING])
