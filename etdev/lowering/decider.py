"""The decision about a model, which is exported, converted once, and shown to the plugins."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import define, field
from executorch.exir import EdgeProgramManager
from torch.export import ExportedProgram

from etdev.edge.conversion import Conversion, PluginExpander, Settings
from etdev.edge.keep_whole import take_marks
from etdev.edge.reference import Reference
from etdev.edge.simplify.sweep import simplified_pieces
from etdev.edge.source import Method, refuse_without_values
from etdev.graph.expand import Expander
from etdev.lowering.composition import Composition
from etdev.runtime.decision import Decision
from etdev.schema.quirk import Stage
from etdev.schema.stages import Listener, Stages
from etdev.upstream.call import guarded


@define(eq=False)
class Decider:
    """A decider for one model.

    Args:
        composition: The plugins and the rules.
        settings: Changes of ExecuTorch's conversion.
        listener: Told of each stage.
    """

    composition: Composition
    settings: Settings
    listener: Listener | None
    _expander: Expander = field(init=False)
    _stages: Stages = field(init=False)

    def __attrs_post_init__(self) -> None:
        simplify = simplified_pieces if self.composition.simplify else None
        composed = self.composition
        self._expander = PluginExpander(
            self.settings.compile_config,
            simplify,
            plugins=composed.plugins,
            apply=composed.quirks.apply,
        )
        self._stages = Stages(self.listener)

    def decide(self, methods: Mapping[str, Method], compiles: bool = False) -> Decision:
        """Return the plan of a model's methods, and the programs that it is for.

        Args:
            methods: The methods by name.
            compiles: True if they are compiled next, which takes the values of all weights.
        """
        references = self._export(methods, compiles)
        sources = {name: reference.program for name, reference in references.items()}
        manager = self._to_edge(sources)
        edge = {name: manager.exported_program(name) for name in manager.methods}
        composed = self.composition
        composed.quirks.apply(Stage.METHODS, edge, "", sources, composed.rules.strict)
        with self._stages.stage("plan"):
            whole = {name: take_marks(program) for name, program in edge.items()}
            plan, programs = self.composition.plan(edge, whole, self._expander)
        return Decision(
            plan,
            programs,
            references,
            manager,
            self.settings,
            self._expander,
            self._stages,
            self.composition.quirks,
            whole,
        )

    def _export(self, methods: Mapping[str, Method], compiles: bool) -> dict[str, Reference]:
        quirks = self.composition.quirks
        with self._stages.stage("export"):
            references = {name: Reference.of(m, m.export(quirks)) for name, m in methods.items()}
        for name, reference in references.items() if compiles else ():
            refuse_without_values(name, reference.program)
        return references

    def _to_edge(self, programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        composed = self.composition
        conversion = Conversion(
            composed.plugins,
            self.settings,
            self._expander,
            composed.simplify,
            apply=composed.quirks.apply,
        )
        # torch can't trace some programs while gradients are on, such as a scan of integers.
        with self._stages.stage("edge"), torch.no_grad():
            return guarded(
                "edge conversion",
                lambda: conversion.to_edge(programs),
                lambda error: composed.name_cause(programs, error),
            )
