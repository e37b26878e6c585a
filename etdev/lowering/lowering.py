"""One lowering at work: what a user gave, and what the stages have made of it so far."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from attrs import define, field
from executorch.exir import EdgeProgramManager
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etdev.delegate.compile import Compiler
from etdev.delegate.split import Split
from etdev.edge.conversion import Conversion
from etdev.edge.reference import Reference
from etdev.lowering.composition import Composition
from etdev.planner.partitioning import Verdicts
from etdev.quirks.table import Fixer
from etdev.schema.method import Method
from etdev.schema.plan import Plan
from etdev.schema.stopwatch import Stopwatch
from etdev.schema.tensors import SharedState
from etdev.upstream.edge import unverified


@define(eq=False)
class Lowering:
    """A lowering; etdev/pipeline.py has the stages that fill it in, everything by method.

    Args:
        composition: The plugins, the rules and the quirks.
        conversion: The conversion to the edge dialect, with its settings.
        fixer: The rows of the quirks table at work.
        stages: Time of each stage so far.
        methods: The methods of the model.
        compiles: The methods will be compiled, which takes the values of all weights.
        sources: The programs as torch.export made them.
        state: The buffers that methods share.
        references: The methods in eager PyTorch.
        converted: The programs in the edge dialect, before the plan decomposed any node.
        whole: The ops that were kept whole, and the plugins that wanted them.
        barred: Verdicts on nodes that a plugin can't have, since its compiler failed on them.
        programs: The programs as the last stage returned them; from the plan on, in the edge
            dialect with exactly the plan's nodes.
        plan: The plan, once it is made.
        splits: A program for each partition.
        compiler: Compiles the partitions, and knows how.
        modules: The compiled partitions, in plan order.
    """

    composition: Composition
    conversion: Conversion
    fixer: Fixer
    stages: Stopwatch
    methods: Mapping[str, Method] = field(factory=dict)
    compiles: bool = False
    sources: Mapping[str, ExportedProgram] = field(factory=dict)
    state: Sequence[SharedState] = ()
    references: Mapping[str, Reference] = field(factory=dict)
    converted: Mapping[str, ExportedProgram] = field(factory=dict)
    whole: Mapping[str, Mapping[str, Sequence[str]]] = field(factory=dict)
    barred: dict[str, Verdicts] = field(factory=dict)
    programs: dict[str, ExportedProgram] = field(factory=dict)
    plan: Plan = field(factory=lambda: Plan(()))
    splits: Mapping[str, Split] = field(factory=dict)
    compiler: Compiler = field(factory=lambda: Compiler(()))
    modules: Mapping[str, Sequence[LoweredBackendModule]] = field(factory=dict)

    def manager(self, programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        """Return ExecuTorch's manager of programs that may call delegates."""
        # ExecuTorch's verifier doesn't know calls of delegates.
        settings = self.conversion.settings
        methods = copy.deepcopy(settings.constant_methods)
        return EdgeProgramManager(dict(programs), methods, unverified(settings.compile_config))
