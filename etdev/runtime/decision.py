"""Decisions: a plan with the programs, references and settings that it was made from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from attrs import field, frozen
from executorch.exir import EdgeProgramManager
from torch.export import ExportedProgram

from etdev.edge.conversion import Settings
from etdev.edge.reference import Reference
from etdev.graph.expand import Expander
from etdev.schema.plan import Plan
from etdev.schema.quirk import Quirks
from etdev.schema.stopwatch import Stopwatch
from etdev.upstream.edge import unverified


@frozen(eq=False)
class Decision:
    """A plan and everything that is needed to compile it, or to compare a .pte with it.

    Args:
        programs: Edge-dialect program per method, with exactly the plan's nodes.
        references: The methods in eager PyTorch.
        converted: The programs before the plan decomposed any node.
        whole: For each method, the ops that were kept whole and the plugins that wanted them.
    """

    plan: Plan
    programs: Mapping[str, ExportedProgram]
    references: Mapping[str, Reference]
    converted: Mapping[str, ExportedProgram]
    settings: Settings
    expander: Expander
    stages: Stopwatch
    quirks: Quirks
    whole: Mapping[str, Mapping[str, Sequence[str]]] = field(factory=dict)

    def rebuilt(self, programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        """Return ExecuTorch's manager of programs that may call delegates."""
        # ExecuTorch's verifier doesn't know calls of delegates.
        config = unverified(self.settings.compile_config)
        methods = copy.deepcopy(self.settings.constant_methods)
        return EdgeProgramManager(dict(programs), methods, config)
