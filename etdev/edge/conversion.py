"""Convert ATen programs to the edge dialect once for all plugins, keeping whole every op that some
plugin asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.program._program import (
    _create_empty_etrecord,
    lift_constant_tensor_pass,
)
from torch._ops import OpOverload
from torch.export import ExportedProgram

from etdev.edge import branches, state
from etdev.edge.branch_constants import with_given_constants
from etdev.edge.branch_pieces import with_branch_pieces
from etdev.edge.checks import without_checks
from etdev.edge.empties import with_made_empties
from etdev.edge.functional import functional
from etdev.edge.inputs import (
    refuse_fixed_sizes,
    warn_of_unbounded_sizes,
    with_plain_strides,
)
from etdev.edge.keep_whole import Wishes, wishers
from etdev.edge.opset import Opset
from etdev.edge.positions import refuse_unknown_slices, with_known_positions
from etdev.edge.simplify.sweep import simplified
from etdev.errors import SourceError
from etdev.graph.expand import Expander
from etdev.graph.generation import generate
from etdev.graph.layout import mixing_convolutions, with_contiguous_weights
from etdev.graph.nodes import has_scan, op_name
from etdev.graph.ops import edge_name
from etdev.graph.symbols import unbound, widen_ranges
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Apply, Stage, unchanged


@frozen(eq=False)
class Settings:
    """Settings of the conversion, passed on to ExecuTorch's `to_edge_transform_and_lower`.

    Args:
        compile_config: Its EdgeCompileConfig.
        transform_passes: Passes over the edge programs, run before anything is claimed.
        constant_methods: Methods that return a constant, by name.
        generate_etrecord: Keep what ExecuTorch's Inspector needs.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    transform_passes: Any = None
    constant_methods: Mapping[str, Any] | None = None
    generate_etrecord: bool = False

    @classmethod
    def of(cls, given: object) -> Settings:
        """Take the settings that a caller gave, or the defaults for None.

        Raises:
            SourceError: They are something else, such as a bare EdgeCompileConfig.
        """
        if isinstance(given, (cls, type(None))):
            return given or cls()
        cure = "give Settings(compile_config=...)"
        raise SourceError("settings", f"is {type(given).__name__}", cure)


@define(eq=False)
class Conversion:
    """Converts programs to the edge dialect, with the wishes of all plugins together.

    ExecuTorch's own conversion traces the program once for each partitioner and twice more, and
    verifies it after every step. Here it is decomposed in one go with all wanted ops whole; those
    that no plugin wants at their place in the decomposed program are then decomposed one by one.

    ExecuTorch asks its partitioners about a functional program, which takes one more trace. Here
    only programs are traced again in which an op would differ.

    Args:
        plugins: Asked for ops to keep whole, in claim order.
        compile_config: ExecuTorch's; not changed.
        expander: Decomposes single ops.
        simplify: Whether what computes nothing new is taken out of what is converted.
        prepare: Whether plugins may rewrite programs first.
        apply: Applies the quirks of a stage.
    """

    plugins: Sequence[Plugin]
    compile_config: EdgeCompileConfig
    expander: Expander
    simplify: bool = True
    prepare: bool = True
    apply: Apply = unchanged
    _kept: dict[OpOverload, None] = field(factory=dict)
    _inside: dict[OpOverload, None] = field(factory=dict)

    def to_edge(
        self,
        programs: Mapping[str, ExportedProgram],
        constant_methods: Mapping[str, Any] | None = None,
        transform_passes: Any = None,
        generate_etrecord: bool = False,
    ) -> EdgeProgramManager:
        """Convert ATen programs; nothing is delegated yet.

        Args:
            programs: ATen program of each method; one in the edge dialect is taken as it is.
            constant_methods: As `to_edge_transform_and_lower` takes them.
            transform_passes: Likewise; run before anything is claimed.
            generate_etrecord: Likewise.
        """
        for name in programs.keys() & (constant_methods or {}).keys():
            what = f"constant_methods has {name!r}, which is a method of the model"
            raise SourceError("settings", what, "give the constant another name")
        scans = any(has_scan(program.graph_module) for program in programs.values())
        with torch.set_grad_enabled(torch.is_grad_enabled() and not scans):
            edge = {name: self._convert(name, program) for name, program in programs.items()}
        config = copy.copy(self.compile_config)
        exceptions = [*config._core_aten_ops_exception_list, *self._kept]
        config._core_aten_ops_exception_list = exceptions
        methods = copy.deepcopy(dict(constant_methods)) if constant_methods else None
        if config._check_ir_validity:
            Opset(self.compile_config, self._inside).refuse_others(edge)
        manager = EdgeProgramManager(edge, methods, config, list(self._kept))
        if generate_etrecord:
            manager._etrecord = _create_empty_etrecord()
            manager._etrecord.add_exported_program(dict(programs))
            manager._etrecord.add_edge_dialect_program(copy.deepcopy(manager))
        if transform_passes is not None:
            with unbound(*edge.values()):
                manager = manager.transform(transform_passes)
            for method in manager.methods:
                lift_constant_tensor_pass(manager.exported_program(method))
        for method in manager.methods:
            program = manager.exported_program(method)
            program = self.apply(Stage.EDGE, program, method)
            refuse_fixed_sizes(method, program)
            warn_of_unbounded_sizes(method, program)
            completed = state.completed(program, method)
            # A program that came in the edge dialect is as its maker wants it.
            if self.simplify and programs[method].dialect != "EDGE":
                # A new value of a buffer may be another's now, without the copy between them.
                completed = state.with_own_updates(simplified(completed))
            if programs[method].dialect != "EDGE":
                widen_ranges(completed, programs[method].range_constraints)
            manager._edge_programs[method] = completed
        return manager

    def _convert(self, method: str, program: ExportedProgram) -> ExportedProgram:
        if program.dialect == "EDGE":
            return program
        program = self.apply(Stage.SOURCE, program, method)

        def ask(program: ExportedProgram) -> Wishes:
            return Wishes(program, method, self.plugins)

        prepared = self._prepared(method, with_given_constants(program))
        prepared = with_known_positions(prepared)
        refuse_unknown_slices(prepared)
        program = with_made_empties(without_checks(functional(prepared, method, self.apply)))
        state.refuse_written_inputs(program, method)
        program = state.with_own_updates(program)
        wishes = ask(program)
        self._keep(wishes)
        ops = wishes.ops
        table = {op: pieces for op, pieces in self.expander.table.items() if op not in ops}
        opset = Opset(self.compile_config, ops)
        decomposed = opset.decomposed(without_checks(program.run_decompositions(table)), table)
        decomposed = self.apply(Stage.DECOMPOSED, decomposed, method)
        wishes = ask(decomposed)
        if branches.has_wanted_ops(decomposed, wishes):
            program = self.apply(Stage.DECOMPOSED, program, method)
            edge = branches.to_edge(program, ask, self.compile_config)
        else:
            for node in decomposed.graph.nodes:
                wishes.mark(node)
            # Verified once, by the manager, instead of after every step.
            config = copy.copy(self.compile_config)
            config._check_ir_validity = False
            with unbound(decomposed):
                edge = generate(config, decomposed, ops)
        edge = with_branch_pieces(edge, self.expander)
        return self.expander.expand(edge, self._unwanted(edge, ops)).program

    def _keep(self, wishes: Wishes) -> None:
        """Note which ops stay whole until plugins are asked."""
        self._kept.update(dict.fromkeys(wishes.ops))
        self._inside.update(wishes.inside)
        self.expander.kept.update(wishes.inside, wishes.decomposed)

    def _prepared(self, method: str, program: ExportedProgram) -> ExportedProgram:
        """A program as the plugins rewrite it, each given what the one before returned."""
        program = with_plain_strides(method, program)
        for plugin in self.plugins if self.prepare else ():
            program = answers.prepare(plugin, program, method)
        mixing = any(mixing_convolutions(program.graph))
        return with_contiguous_weights(program) if mixing else program

    def _unwanted(self, program: ExportedProgram, ops: Sequence[OpOverload]) -> list[str]:
        """Ops kept whole that have a decomposition and that no plugin wants at their place."""
        names = {edge_name(op) for op in ops}
        nodes = program.graph.nodes
        unwanted = [n.name for n in nodes if op_name(n) in names and not wishers(n)]
        return self.expander.decomposable(program, unwanted)


def rebuilt(
    manager: EdgeProgramManager,
    programs: Mapping[str, ExportedProgram],
    compile_config: EdgeCompileConfig,
    constant_methods: Mapping[str, Any] | None,
) -> EdgeProgramManager:
    """Make a manager like another with other programs, as `to_backend` would return it."""
    config = copy.copy(compile_config)
    # The programs call delegates now, which the edge verifier doesn't know.
    config._check_ir_validity = False
    rebuilt = EdgeProgramManager(dict(programs), copy.deepcopy(constant_methods), config)
    rebuilt._etrecord = manager._etrecord
    return rebuilt
