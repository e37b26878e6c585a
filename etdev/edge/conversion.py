"""Conversion of ATen programs to the edge dialect, once for all plugins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.edge.functional import functional
from etdev.edge.opset import Opset
from etdev.edge.simplify.sweep import simplified
from etdev.errors import SourceError
from etdev.graph.expand import Expander
from etdev.graph.inlining import inline_in_branch
from etdev.graph.nodes import op_name
from etdev.graph.ops import aten_op, edge_name, own_pieces
from etdev.graph.passes import generate
from etdev.graph.symbols import unbound
from etdev.registry import answers
from etdev.registry.keep_whole import MARK, KeepWholeRequests, requesters
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Quirks
from etdev.schema.stages import DECOMPOSE, FINISH, PLAN, PREPARE, TO_EDGE, VALIDATE
from etdev.upstream import edge as upstream
from etdev.upstream.decompositions import Table, further_pieces
from etdev.upstream.operators import OpOverload


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


@define(eq=False)
class PluginExpander(Expander):
    """Asks plugins for decompositions, in claim order, then the tables of ExecuTorch and torch."""

    plugins: Sequence[Plugin] = field(default=(), kw_only=True)
    quirks: Quirks = field(kw_only=True)
    _opset: Opset = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._opset = Opset(self.compile_config, self.kept)

    def formula_of(self, node: Node) -> Callable[..., Any] | None:
        """Return a plugin's decomposition of a node, or the one that its own library has."""
        op, config = aten_op(node.target), self.compile_config
        # The caller says that the runtime has a kernel for it.
        if op in upstream.excepted(config):
            return None
        return answers.decompose(self.plugins, node, config) or own_pieces(op)

    def finishes(self, op: object) -> bool:
        """Return True if an op is outside the dialect and one of torch's tables has it."""
        return isinstance(op, OpOverload) and not self._opset.has(op) and bool(further_pieces(op))

    def finish(
        self, program: ExportedProgram, table: Table, opset: Opset | None = None, method: str = ""
    ) -> ExportedProgram:
        """Decompose ops outside the dialect by torch's tables, and apply quirks around that."""
        functional = self.quirks.apply(FINISH, program, method)
        finished = (opset or self._opset).decomposed(functional, table)
        return self.quirks.apply(TO_EDGE, finished, method)


@define(eq=False)
class Conversion:
    """Converts programs to the edge dialect, with the requests of all plugins together.

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
    # Let plugins rewrite programs first, or approximate them.
    prepare: bool = True
    approximated: dict[str, ExportedProgram] = field(factory=dict)
    _kept: dict[OpOverload, None] = field(factory=dict)
    _inside: dict[OpOverload, None] = field(factory=dict)

    def to_edge(self, programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
        """Convert ATen programs by method; nothing is delegated yet.

        A program in the edge dialect is taken as it is.
        """
        settings, config = self.settings, self.settings.compile_config
        for name in programs.keys() & (settings.constant_methods or {}).keys():
            what = f"constant_methods has {name!r}, which is a method of the model"
            raise SourceError("settings", what, "give the constant another name")
        edge = {name: self._convert(name, program) for name, program in programs.items()}
        if upstream.verifies(config):
            self.refuse_others(edge)
        if settings.transform_passes is not None:
            manager = EdgeProgramManager(edge, None, upstream.unverified(config))
            with unbound(*edge.values()):
                manager = manager.transform(settings.transform_passes)
            edge = {name: upstream.lift_constants(manager.exported_program(name)) for name in edge}
        # ExecuTorch verifies the programs that a manager is made of.
        EdgeProgramManager(edge, None, config, list(self._kept))
        for name, source in programs.items():
            apply = self.expander.quirks.apply
            edge[name] = apply(VALIDATE, edge[name], name, source)
            # A program that came in the edge dialect is as its author wants it.
            if self.simplify and source.dialect != "EDGE":
                edge[name] = apply(PLAN, simplified(edge[name]), name)
        return edge

    def refuse_others(self, edge: Mapping[str, ExportedProgram]) -> None:
        """Refuse converted programs with ops that ExecuTorch doesn't take."""
        Opset(self.settings.compile_config, self._inside).refuse_others(edge)

    def _convert(self, method: str, program: ExportedProgram) -> ExportedProgram:
        """Convert one program, and decompose the ops that no plugin wants whole at their place."""
        if program.dialect == "EDGE":
            return program
        expander, config = self.expander, self.settings.compile_config
        functional = self._functional(method, program)
        requests = KeepWholeRequests(functional, method, expander.plugins)
        ops = requests.ops
        self._kept.update(dict.fromkeys(ops))
        self._inside.update(requests.inside)
        expander.kept.update(requests.inside, requests.decomposed)
        table = {op: pieces for op, pieces in expander.table.items() if op not in ops}
        decomposed = functional.run_decompositions(table)
        decomposed = expander.finish(decomposed, table, Opset(config, ops), method)
        requests = KeepWholeRequests(decomposed, method, expander.plugins)
        for node in decomposed.graph.nodes:
            requests.mark(node)
        with unbound(decomposed):
            edge = generate(config, decomposed, ops)
        # Plugins claim nothing in branches of control flow, but are asked for formulas there.
        self._decompose_branches(edge.graph_module, edge, {*ops, *expander.kept})
        names = {edge_name(op) for op in ops}
        nodes = [n.name for n in edge.graph.nodes if op_name(n) in names and not requesters(n)]
        return expander.expand(edge, nodes).program

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
        quirks = self.expander.quirks
        prepared = quirks.apply(PREPARE, program, method)
        for plugin in self.expander.plugins if self.prepare else ():
            rewritten = answers.prepare(plugin, prepared, method)
            if rewritten is not prepared:
                prepared = quirks.apply(PREPARE, rewritten, method)
                approximates = getattr(plugin.implementation, "approximates", False)
                self.approximated |= {method: prepared} if approximates else {}
        return quirks.apply(DECOMPOSE, functional(prepared, method, quirks), method)


def take_marks(program: ExportedProgram) -> dict[str, tuple[str, ...]]:
    """Remove the marks; return the ops that were kept whole, with the plugins that wanted them.

    Ops of other libraries stay whole for every plugin. Some backends recognise a layer by the ops
    that quantise for it, and could not once another plugin has one of their pieces.
    """
    kept = {}
    for node in program.graph.nodes:
        if (names := requesters(node)) and own_pieces(aten_op(node.target)) is None:
            kept[node.name] = names
        if MARK in node.meta.get("custom", {}):
            node.meta["custom"] = {k: v for k, v in node.meta["custom"].items() if k != MARK}
    return kept
