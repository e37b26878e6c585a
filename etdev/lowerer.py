"""The loop, which README.md draws: from a model to a plan, and from the plan to a .pte.

etdev/pipeline.py has its stages, from export to compile; a `Lowered` emits, writes, audits and
verifies the .pte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from attrs import define, evolve

from etdev.delegate.cache.cache import Cache
from etdev.edge.conversion import Conversion, PluginExpander, Settings
from etdev.edge.reference import untouched_random_state
from etdev.edge.simplify.sweep import simplified
from etdev.edge.source import methods_of
from etdev.errors import EtdevError, shown
from etdev.lowered import Lowered
from etdev.lowering.compilation import Compilation
from etdev.lowering.composition import Composition, compose
from etdev.lowering.lowering import Lowering
from etdev.pipeline import decide, lower
from etdev.quirks.table import Fixer
from etdev.registry import Registry
from etdev.registry.plugin import Plugin
from etdev.registry.watchdog import watched
from etdev.schema.caching import CacheSettings
from etdev.schema.limits import Budget, Limits
from etdev.schema.pins import Pin
from etdev.schema.plan import Plan
from etdev.schema.stopwatch import Listener, Stopwatch
from etdev.schema.target import Target
from etdev.upstream.edge import verifies
from etdev.upstream.shortcuts.decompositions import quick_decompositions
from etdev.upstream.shortcuts.leftovers import forgotten_code
from etdev.upstream.tracing import exclusive_tracing


@define(eq=False, init=False)
class Lowerer:
    """A lowering of models with the installed plugins.

    Args:
        plugins: Plugin names and plugin objects in claim order; None takes what is installed, in
            the order of the registry.
        registry: A Registry, its tables, `{"plugins": {"cpu": {}}}`, or the path of its file; None
            reads ./registry.toml, else `[tool.etdev]` in ./pyproject.toml, else etdev's own.
        devices: Device per plugin, `{"trt": "cuda:1"}`, or per plugin and method,
            `{"trt": {"forward": "cuda:1"}}`. Wins over the registry, which wins over the plugin.
        pins: Nodes that only one plugin may have, as `Pin` objects or mappings of their fields.
            They precede the registry's.
        limits: Limits per plugin, `{"cpu": {"min_nodes": 3}}`. Each wins over the registry's.
        budget: A `Budget` or a mapping of its fields, instead of the registry's.
        strict: Refuse devices that a plugin had to assume, pins that match nothing or that their
            plugin doesn't keep, and ops that this machine's runtime has no kernel for; None takes
            the registry's choice.
        simplify: Remove redundant work before plugins are asked: duplicate subexpressions,
            constant subgraphs, no-op masks and copies. The plan names each removed node with its
            line. None takes the registry's choice, or True.
        share_state: Keep a buffer that several methods share in eager PyTorch, such as a KV cache,
            one buffer in the .pte, which is then loaded with shared arenas; or give each method its
            own. None takes the registry's choice, or True.
        cache: The compile cache: a folder, a URL, `CacheSettings`, or False for none. None takes
            the environment variable ETDEV_CACHE, else the registry, else a folder in the user's
            cache directory.
        target: Where the program will run, an `etdev.schema.target.Target`. Its plugins are asked
            if none is named here; what its runtime lacks is left out, or refused if it was named.
            None is this machine.
        executor: A `concurrent.futures.Executor`, such as a Dask client's, that compiles each
            partition which can be sent to another process. The .pte is the same.
        jobs: How many processes compile at most, this one among them. The .pte is the same.
        on_failure: `error`, or `fallback` to offer a partition that can't be compiled to the next
            plugins, and to leave out plugins that can't compile here; None takes the registry's.
        listener: Called with a stage and a detail as the work goes on; its method `step`, if it
            has one, also with a `PartitionProgress`; and from another thread with `waiting for
            PLUGIN: HOOK` and the seconds so far, when a plugin takes long.

    Raises:
        EtdevError: An argument, the registry or a plugin can't be used; the class says which, such
            as PluginError or DeviceError.

    Example:
        lowered = Lowerer().lower(module, (example,))
        lowered.save("model.pte")
    """

    composition: Composition
    compilation: Compilation
    listener: Listener | None

    def __init__(  # noqa: PLR0913 (one argument for each setting of registry.toml)
        self,
        plugins: Sequence[object] | None = None,
        *,
        registry: Registry | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        devices: Mapping[str, Any] | None = None,
        pins: Sequence[Pin | Mapping[str, Any]] | None = None,
        limits: Mapping[str, Limits | Mapping[str, Any]] | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        strict: bool | None = None,
        simplify: bool | None = None,
        share_state: bool | None = None,
        cache: CacheSettings | str | os.PathLike[str] | bool | None = None,
        target: Target | None = None,
        executor: Executor | None = None,
        jobs: int | None = None,
        on_failure: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        # By the names of the fields of `Options`, which all are arguments.
        arguments = {**locals()}
        if listener is not None and not callable(listener):
            cure = "give a function of a stage and a detail"
            raise EtdevError("listener", f"is {shown(listener)}", cure)
        with watched(listener):
            self.composition = compose(plugins, registry, arguments)
        self.compilation = Compilation(self.composition)
        self.listener = listener

    @property
    def cache(self) -> Cache:
        """The compile cache."""
        return self.compilation.cache

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins that are asked, in claim order."""
        return self.composition.plugins

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
                name to one of these or to a tuple (module, inputs[, dynamic_shapes]) or (module,
                inputs, kwargs, dynamic_shapes).
            inputs: Example inputs of a module: a tuple, a tensor, or a dict by keyword.
            kwargs: Example inputs by keyword.
            dynamic_shapes: As `torch.export.export` takes them.
            settings: Settings of ExecuTorch's conversion.

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

        Plugins that can't compile on this machine are left out with a warning.

        Args:
            model: An nn.Module, an ExportedProgram, the path of a .pt2 file, or a dict of methods.
            inputs: Example inputs of a module: a tuple, a tensor, or a dict by keyword.
            kwargs: Example inputs by keyword.
            dynamic_shapes: As `torch.export.export` takes them.
            settings: Settings of ExecuTorch's conversion.

        Raises:
            PluginError: A plugin that was named, or any under `strict`, can't compile here.
            CompileError: A backend failed.
            EtdevError: As `plan`.
        """
        with self._undisturbed():
            # Before the model is touched, which may take long.
            composition = self.compilation.fit()
            work = self._lowering(composition, settings)
            work.methods = methods_of(model, inputs, kwargs, dynamic_shapes)
            work.compiles = True
            lower(work, self.compilation)
        return Lowered(work)

    def decide(
        self,
        model: object,
        inputs: Any = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        settings: Settings | None = None,
    ) -> Lowering:
        """Plan as `plan` does, and keep the programs that the plan is for."""
        with self._undisturbed():
            work = self._lowering(self.composition, settings)
            work.methods = methods_of(model, inputs, kwargs, dynamic_shapes)
            decide(work)
        return work

    def lower_again(self, known: Lowering) -> Lowered:
        """Plan and compile programs that another lowerer with the same plugins has converted."""
        with self._undisturbed():
            composition, stages = self.compilation.fit(), Stopwatch(self.listener)
            work = evolve(known, composition=composition, stages=stages, barred={})
            lower(work, self.compilation)
        return Lowered(work)

    def _lowering(self, composition: Composition, settings: Settings | None) -> Lowering:
        """Return a lowering before its first stage."""
        settings, fixer = settings or Settings(), Fixer(composition.quirks)
        config, simplifies = settings.compile_config, composition.options.simplify
        simplify = simplified if simplifies else None
        expander = PluginExpander(config, simplify, plugins=composition.plugins, quirks=fixer)
        conversion = Conversion(settings, expander, simplifies, refuses_others=verifies(config))
        return Lowering(composition, conversion, fixer, Stopwatch(self.listener))

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Keep the caller's random state and torch's generated code, and watch plugins."""
        with (
            watched(self.listener),
            exclusive_tracing(),
            untouched_random_state(),
            forgotten_code(),
            quick_decompositions(),
        ):
            yield
