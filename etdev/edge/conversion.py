"""Conversion of ATen programs to the edge dialect, once for all plugins."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.edge.functional import functional
from etdev.edge.keep_whole import Wishes, wishers
from etdev.edge.opset import Opset, further_pieces
from etdev.edge.simplify.sweep import simplified
from etdev.errors import LoweringError, SourceError, first_line
from etdev.graph.expand import Expander
from etdev.graph.inlining import inline_in_branch
from etdev.graph.nodes import op_name, where
from etdev.graph.ops import aten_op, edge_name, own_pieces
from etdev.graph.passes import generate
from etdev.graph.symbols import unbound
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Apply, Stage, unchanged
from etdev.upstream import edge as upstream
from etdev.upstream.decompositions import Table
from etdev.upstream.operators import OpOverload

# torch's interpreter adds it to the errors of ops.
_NODE = re.compile(r"^While executing %(\w+) :", re.MULTILINE)


@frozen(eq=False)
class Settings:
    """Settings of the conversion, passed on to ExecuTorch's `to_edge_transform_and_lower`.

    Args:
        compile_config: Its EdgeCompileConfig.
        transform_passes: Passes over the edge programs, run before plugins claim nodes.
        constant_methods: Methods that return a constant, by name.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    transform_passes: Any = None
    constant_methods: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, given: object) -> Settings:
        """Take the settings that a caller gave, or the defaults for None."""
        if isinstance(given, (cls, type(None))):
            return given or cls()
        cure = "give Settings(compile_config=...)"
        raise SourceError("settings", f"is {type(given).__name__}", cure)


@define(eq=False)
class PluginExpander(Expander):
    """Asks plugins for decompositions, in claim order, then the tables of ExecuTorch and torch."""

    plugins: Sequence[Plugin] = field(default=(), kw_only=True)
    # Applies the quirks of a stage.
    apply: Apply = field(default=unchanged, kw_only=True)
    _opset: Opset = field(init=False)

    @_opset.default
    def _own_opset(self) -> Opset:
        return Opset(self.compile_config, self.kept)

    def formula_of(self, node: Node) -> Callable[..., Any] | None:
        """Return a plugin's decomposition of a node, or the one that its own library has."""
        op, config = aten_op(node.target), self.compile_config
        # The caller says that the runtime has a kernel for it.
        if op in upstream.excepted(config) or op in config.preserve_ops:
            return None
        return answers.decompose(self.plugins, node, config) or own_pieces(op)

    def finishes(self, op: object) -> bool:
        """Return True if an op is outside the dialect and one of torch's tables has it."""
        return isinstance(op, OpOverload) and not self._opset.has(op) and bool(further_pieces(op))

    def finish(
        self,
        program: ExportedProgram,
        table: Table,
        opset: Opset | None = None,
        method: str = "",
    ) -> ExportedProgram:
        """Decompose ops outside the dialect by torch's tables, and apply quirks around that."""
        functional = self.apply(Stage.FUNCTIONAL, program, method)
        finished = (opset or self._opset).decomposed(functional, table)
        return self.apply(Stage.DECOMPOSED, finished, method)  # type: ignore[no-any-return]


@define(eq=False)
class Conversion:
    """Converts programs to the edge dialect, with the wishes of all plugins together.

    ExecuTorch's own conversion traces the program once for each partitioner and twice more, and
    verifies it after every step. Here a program is decomposed in one go with all wanted ops whole;
    those that no plugin wants at their place in the decomposed program are then decomposed one by
    one.
    """

    settings: Settings
    # Its plugins are asked for ops to keep whole.
    expander: PluginExpander
    # Remove redundant work from the converted programs.
    simplify: bool = True
    # Let plugins rewrite programs first.
    prepare: bool = True
    _kept: dict[OpOverload, None] = field(factory=dict)
    _inside: dict[OpOverload, None] = field(factory=dict)

    def to_edge(self, programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        """Convert ATen programs by method; nothing is delegated yet.

        A program in the edge dialect is taken as it is.
        """
        settings, config = self.settings, self.settings.compile_config
        methods = copy.deepcopy(dict(settings.constant_methods or {}))
        for name in programs.keys() & methods.keys():
            what = f"constant_methods has {name!r}, which is a method of the model"
            raise SourceError("settings", what, "give the constant another name")
        edge = {name: self._convert(name, program) for name, program in programs.items()}
        if upstream.verifies(config):
            Opset(config, self._inside).refuse_others(edge)
        config = upstream.excepting(config, [*upstream.excepted(config), *self._kept])
        manager = EdgeProgramManager(edge, methods or None, config, list(self._kept))
        if settings.transform_passes is not None:
            with unbound(*edge.values()):
                manager = manager.transform(settings.transform_passes)
            for method in manager.methods:
                upstream.lift_constants(manager.exported_program(method))
        for method, source in programs.items():
            apply = self.expander.apply
            program = apply(Stage.EDGE, manager.exported_program(method), method, source)
            # A program that came in the edge dialect is as its author wants it.
            if self.simplify and source.dialect != "EDGE":
                program = apply(Stage.SIMPLIFIED, simplified(program), method)
            upstream.set_program(manager, method, program)
        return manager

    def _convert(self, method: str, program: ExportedProgram) -> ExportedProgram:
        """Convert one program, and decompose the ops that no plugin wants whole at their place."""
        if program.dialect == "EDGE":
            return program
        functional = self._functional(method, program)
        wishes = Wishes(functional, method, self.expander.plugins)
        ops = wishes.ops
        self._kept.update(dict.fromkeys(ops))
        self._inside.update(wishes.inside)
        self.expander.kept.update(wishes.inside, wishes.decomposed)
        edge = self._generated(method, self._decomposed(method, functional, ops), ops)
        # Plugins claim nothing in branches of control flow, but are asked for formulas there.
        self._decompose_branches(edge.graph_module, edge, {*ops, *self.expander.kept})
        names = {edge_name(op) for op in ops}
        nodes = [n for n in edge.graph.nodes if op_name(n) in names and not wishers(n)]
        return self.expander.expand(edge, [node.name for node in nodes]).program

    def _decompose_branches(
        self, module: GraphModule, program: ExportedProgram, ops: Collection[Any]
    ) -> None:
        """Decompose ops that were kept whole in the branches of a module, in place."""
        expander = self.expander
        for _, branch, _ in get_control_flow_submodules(module):
            self._decompose_branches(branch, program, ops)
            # A piece may be an op that is decomposed, too.
            while pieces := {
                node: own
                for node in branch.graph.nodes
                if node.op == "call_function"
                and (aten_op(node.target) in ops or expander.formula_of(node))
                and (own := expander.pieces(node, program))
            }:
                inline_in_branch(branch, pieces)

    def _functional(self, method: str, program: ExportedProgram) -> ExportedProgram:
        """Make a program functional after plugins have rewritten it."""
        apply = self.expander.apply
        prepared = apply(Stage.SOURCE, program, method)
        for plugin in self.expander.plugins if self.prepare else ():
            rewritten = answers.prepare(plugin, prepared, method)
            if rewritten is not prepared:
                prepared = apply(Stage.SOURCE, rewritten, method)
        return apply(Stage.FUNCTIONAL, functional(prepared, method, apply), method)  # type: ignore[no-any-return]

    def _decomposed(
        self, method: str, program: ExportedProgram, ops: Sequence[OpOverload]
    ) -> ExportedProgram:
        """Decompose a program as far as possible, but for some ops."""
        table = {op: pieces for op, pieces in self.expander.table.items() if op not in ops}
        opset = Opset(self.settings.compile_config, ops)
        return self.expander.finish(program.run_decompositions(table), table, opset, method)

    def _generated(
        self, method: str, program: ExportedProgram, ops: Sequence[OpOverload]
    ) -> ExportedProgram:
        """Run ExecuTorch's passes over a decomposed program, which may be changed."""
        wishes = Wishes(program, method, self.expander.plugins)
        for node in program.graph.nodes:
            wishes.mark(node)
        # The manager verifies it once; ExecuTorch would after every step.
        with unbound(program):
            return generate(upstream.unverified(self.settings.compile_config), program, ops)


def rebuilt(programs: Mapping[str, ExportedProgram], settings: Settings) -> EdgeProgramManager:
    """Return a manager of other programs with the same settings, as `to_backend` does."""
    # The programs call delegates now, which the edge verifier doesn't know.
    config = upstream.unverified(settings.compile_config)
    methods = copy.deepcopy(settings.constant_methods)
    return EdgeProgramManager(dict(programs), methods, config)


def name_node(programs: Iterable[ExportedProgram], error: Exception) -> None:
    """Raise an error about the node on which a conversion failed, if torch's error names one."""
    names = set(_NODE.findall(str(error)))
    for node in (node for program in programs for node in program.graph.nodes):
        if node.name in names and node.op == "call_function":
            raise LoweringError(
                "edge conversion",
                f"ExecuTorch failed on {op_name(node)}{where(node)} with {first_line(error)}",
                "write it with other ops; the cause is chained below",
            ) from error
