"""Conversion of ATen programs to the edge dialect, once for all plugins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.edge.functional import functional, without_own_writes
from etdev.edge.integer_products import with_float_products
from etdev.edge.opset import Opset
from etdev.edge.products import LINEAR, with_linear_layers
from etdev.edge.quantised import with_whole_patterns
from etdev.edge.simplify.sweep import simplified
from etdev.edge.simplify.tables import with_read_rows
from etdev.errors import SourceError
from etdev.graph.expand import Expander
from etdev.graph.inlining import inline_in_branch
from etdev.graph.nodes import calls_in, op_name
from etdev.graph.ops import aten_op, edge_name, own_pieces
from etdev.graph.symbols import unbound
from etdev.registry import answers
from etdev.registry.keep_whole import MARK, KeepWholeRequests, requesters
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Quirks
from etdev.schema.stages import FINISH, PREPARE, TO_EDGE
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

    def finish(self, program: ExportedProgram, method: str, table: Table) -> ExportedProgram:
        """Decompose ops outside the dialect by torch's tables, between the rows of two stages."""
        functional = self.quirks.apply(FINISH, program, method)
        return self.quirks.apply(TO_EDGE, self._opset.decomposed(functional, table), method)


@define(eq=False)
class Conversion:
    """The conversion of programs to the edge dialect, with the requests of all plugins together.

    ExecuTorch's own conversion traces the program once for each partitioner and twice more, and
    verifies it after every step. Here a program is decomposed in one go with all wanted ops whole;
    those that no plugin wants at their place in the decomposed program are then decomposed one by
    one. Each method is a stage of etdev/pipeline.py.

    Args:
        settings: The user's settings.
        expander: Its plugins are asked for ops to keep whole.
        simplifies: Remove redundant work from the converted programs.
        prepares: Let plugins rewrite programs first, or approximate them.
        refuses_others: Refuse ops that ExecuTorch doesn't take.
        approximated: The programs that plugins approximated, by method.
    """

    settings: Settings
    expander: PluginExpander
    simplifies: bool = True
    prepares: bool = True
    refuses_others: bool = True
    approximated: dict[str, ExportedProgram] = field(factory=dict)
    # The ops that are kept whole until plugins are asked, by method; those that may stay so.
    _whole: dict[str, Sequence[OpOverload]] = field(factory=dict)
    _inside: dict[OpOverload, None] = field(factory=dict)

    def check_names(self, programs: Mapping[str, ExportedProgram]) -> None:
        """Refuse a method with the name of one that returns a constant."""
        for name in programs.keys() & (self.settings.constant_methods or {}).keys():
            what = f"constant_methods has {name!r}, which is a method of the model"
            raise SourceError("settings", what, "give the constant another name")

    def prepare(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Let plugins rewrite a program, and replace in-place ops that nothing else can see."""
        quirks = self.expander.quirks
        for plugin in self.expander.plugins if self.prepares else ():
            rewritten = answers.prepare(plugin, program, method)
            if rewritten is not program:
                program = quirks.apply(PREPARE, rewritten, method)
                approximates = getattr(plugin.implementation, "approximates", False)
                self.approximated |= {method: program} if approximates else {}
        return without_own_writes(program)

    def functionalise(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Make a program functional, so that plugins which want `silu` see it for `silu_`."""
        return functional(program)

    def decompose(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Decompose all ops but those that a plugin wants whole, by ExecuTorch's table."""
        requests = KeepWholeRequests(program, method, self.expander.plugins)
        self._whole[method] = requests.ops
        self._inside.update(requests.inside)
        self.expander.kept.update(requests.inside, requests.decomposed)
        decomposed: ExportedProgram = program.run_decompositions(self._table(method))
        return decomposed

    def finish(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Decompose ops outside the dialect by torch's tables."""
        opset = Opset(self.settings.compile_config, self._whole[method])
        return opset.decomposed(program, self._table(method))

    def to_edge(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Convert a program, and decompose the ops that no plugin wants whole at their place."""
        expander, config, ops = self.expander, self.settings.compile_config, self._whole[method]
        if self.simplifies:
            program = with_whole_patterns(program)
            if LINEAR in ops:
                program = with_linear_layers(with_float_products(program))
        requests = KeepWholeRequests(program, method, expander.plugins)
        for node in calls_in(program.graph_module):
            requests.mark(node)
        with unbound(program):
            edge = upstream.to_edge_program(config, program, ops)
        # Plugins claim nothing in branches of control flow, but are asked for formulas there.
        self._decompose_branches(edge.graph_module, edge, method, {*ops, *expander.kept})
        names, core = {edge_name(op) for op in ops}, Opset(config, ())
        asked = [n for n in edge.graph.nodes if op_name(n) in names and not requesters(n)]
        nodes = [n.name for n in asked if not self._stays(n, requests, core)]
        return expander.expand(edge, method, nodes).program

    def _stays(self, node: Node, requests: KeepWholeRequests, core: Opset) -> bool:
        """Return True for an op of ExecuTorch's if no plugin that named it has a formula for it.

        Such a node is offered to all plugins first, and decomposed if none of them claims it.
        """
        op, config = aten_op(node.target), self.settings.compile_config
        if op in requests.whole or not core.has(op):
            return False
        return answers.decompose(requests.decomposed.get(op, ()), node, config) is None

    def transform(self, programs: dict[str, ExportedProgram]) -> dict[str, ExportedProgram]:
        """Refuse ops that ExecuTorch doesn't take, and run the user's passes over all programs."""
        config, passes = self.settings.compile_config, self.settings.transform_passes
        if self.refuses_others:
            Opset(config, self._inside).refuse_others(programs)
        if passes is None:
            return programs
        manager = EdgeProgramManager(programs, None, upstream.unverified(config))
        with unbound(*programs.values()):
            manager = manager.transform(passes)
        return {name: upstream.lift_constants(manager.exported_program(name)) for name in programs}

    def validate(self, programs: dict[str, ExportedProgram]) -> None:
        """Let ExecuTorch verify the programs, which it does when a manager is made of them."""
        whole = dict.fromkeys(op for ops in self._whole.values() for op in ops)
        EdgeProgramManager(programs, None, self.settings.compile_config, list(whole))

    def simplify(self, program: ExportedProgram, method: str) -> ExportedProgram:
        """Remove redundant work."""
        return with_read_rows(simplified(program)) if self.simplifies else program

    def _table(self, method: str) -> Table:
        """Return ExecuTorch's decompositions without those of ops that are kept whole."""
        ops = self._whole[method]
        return {op: pieces for op, pieces in self.expander.table.items() if op not in ops}

    def _decompose_branches(
        self,
        module: GraphModule,
        program: ExportedProgram,
        method: str,
        ops: Collection[OpOverload],
    ) -> None:
        """Decompose ops that were kept whole in the branches of a module, in place."""
        expander = self.expander
        for _, branch, _ in get_control_flow_submodules(module):
            self._decompose_branches(branch, program, method, ops)
            # A piece may be an op that is decomposed, too.
            while pieces := {
                node: own
                for node in branch.graph.nodes
                if node.op == "call_function"
                and (aten_op(node.target) in ops or expander.formula_of(node))
                and not requesters(node)
                and (own := expander.pieces(node, program, method))
            }:
                inline_in_branch(branch, pieces)


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
