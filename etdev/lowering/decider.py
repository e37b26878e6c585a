"""The decision about a model, which is exported, converted once, and shown to the plugins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from attrs import evolve

from etdev.edge.conversion import Conversion, PluginExpander, Settings, take_marks
from etdev.edge.shared_state import references_of, shared_states
from etdev.edge.simplify.sweep import simplified
from etdev.edge.source import export, refuse_without_values
from etdev.lowering.composition import Composition, guarded
from etdev.quirks.table import Fixer
from etdev.runtime.decision import Decision
from etdev.schema.method import Method
from etdev.schema.stages import LINK
from etdev.schema.stopwatch import Listener, Stopwatch


def decide(
    composition: Composition,
    settings: Settings,
    listener: Listener | None,
    methods: Mapping[str, Method],
    compiles: bool = False,
) -> Decision:
    """Return the plan of a model's methods, and the programs that it is for.

    With `compiles`, the methods are compiled next, which takes the values of all weights.
    """
    quirks, stages = Fixer(composition.quirks), Stopwatch(listener)
    with stages.stage("export"):
        sources = {name: export(method, quirks) for name, method in methods.items()}
    state = [evolve(s, shared=composition.share_state) for s in shared_states(sources)]
    references = references_of(methods, sources, state)
    for name, program in sources.items() if compiles else ():
        refuse_without_values(name, program)
    simplify, plugins = composition.simplify, composition.plugins
    pieces = partial(simplified, pieces=True) if simplify else None
    expander = PluginExpander(settings.compile_config, pieces, plugins=plugins, quirks=quirks)
    conversion = Conversion(settings, expander, simplify)
    # torch can't trace some programs while gradients are on, such as a scan of integers.
    with stages.stage("edge"), torch.no_grad(), guarded("edge conversion"):
        edge = conversion.to_edge(quirks.apply(LINK, sources, ""))
    for name, program in conversion.approximated.items():
        references |= references_of({name: Method(name, program)}, {name: program}, state)
    with stages.stage("plan"):
        whole = {name: take_marks(program) for name, program in edge.items()}
        plan, programs = composition.plan(edge, whole, expander, state=state)
    return Decision(plan, programs, references, edge, settings, expander, stages, quirks, whole)
