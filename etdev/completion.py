"""Completion of an ATen program, so that ExecuTorch's own conversion of it gives right values."""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram

from etdev.delegate.compile import Compiler
from etdev.edge.conversion import Conversion, PluginExpander, Settings, take_marks
from etdev.errors import EtdevWarning
from etdev.graph.nodes import graph_modules
from etdev.graph.ops import aten_op
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.symbols import fake_mode, settled, unbacked, with_own_symbols
from etdev.lowering.composition import NO_PLUGIN, Composition, guarded
from etdev.lowering.lowering import Lowering
from etdev.pipeline import CONVERTING, Step, plan_and_compile, run
from etdev.planner.checks import check_claimed
from etdev.planner.partitioning import Verdicts
from etdev.quirks.table import Fixer
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.stages import HAND_BACK, PLAN, OwnProgram
from etdev.schema.stopwatch import Stopwatch
from etdev.upstream.edge import WITHOUT_DIM_ORDER, Verifier, with_parts
from etdev.upstream.shortcuts.decompositions import quick_decompositions


@quick_decompositions()
def completed(
    program: ExportedProgram,
    method: str,
    composition: Composition,
    barred: dict[str, Verdicts],
    compiles: bool = False,
) -> tuple[MethodPlan, ExportedProgram]:
    """Convert and plan an ATen program as `Lowerer` does; return it in ATen again, with the plan.

    ExecuTorch converts it into ops that the plugins and portable kernels compute. The program that
    is given is not changed. With `compiles` the partitions are compiled, too, and the plugins of
    failed ones are barred from their nodes.
    """
    fixer, own = Fixer(composition.quirks), {method: with_own_symbols(program)}
    expander = PluginExpander(WITHOUT_DIM_ORDER, plugins=composition.plugins, quirks=fixer)
    conversion = Conversion(Settings(WITHOUT_DIM_ORDER), expander, simplifies=False, prepares=False)
    compiler = Compiler(composition.plugins, tolerant=composition.options.falls_back)
    work = Lowering(
        composition,
        conversion,
        fixer,
        Stopwatch(),
        sources=own,
        programs=dict(own),
        barred=barred,
        compiler=compiler,
    )
    mode = fake_mode(own[method].graph.nodes)
    with settled(mode), torch.no_grad(), warnings.catch_warnings():
        # They are given once more for the edge program that is partitioned.
        warnings.simplefilter("ignore", EtdevWarning)
        run(CONVERTING[1:], work)
        work.converted = dict(work.programs)
        work.whole = {method: take_marks(work.programs[method])}
        if compiles:
            plan_and_compile(work, _PLANNING)
        else:
            run(_PLANNING, work)
    decided = work.programs[method]
    values = [node.meta.get("val") for node in decided.graph.nodes]
    again = _with_clones(_as_aten(decided), work.plan[method])
    written = fixer.apply(HAND_BACK, OwnProgram(again), method)
    return work.plan[method], _with_new_bindings(written) if unbacked(values) else written


def _plan_alone(work: Lowering) -> None:
    """Plan a method by itself; ExecuTorch's edge program is checked against the settings later."""
    (method, program), *_ = work.converted.items()
    planner = work.composition.planner(work.conversion.expander, work.barred)
    plan, decided = planner.plan(program, method, work.whole[method])
    check_claimed(PLAN.name, [plan], NO_PLUGIN)
    work.plan, work.programs = Plan((plan,)), {method: decided}


_PLANNING = (Step(PLAN, _plan_alone),)


@guarded(HAND_BACK.name)
def _as_aten(program: ExportedProgram) -> ExportedProgram:
    """Write an edge-dialect program, which is changed, in the ops that it was converted from."""
    # ExecuTorch runs its passes with gradients on, and torch refuses writes to what requires them.
    writes = bool(program.graph_signature.buffers_to_mutate)
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = aten_op(node.target)
                if node.target == torch.ops.aten.view.default:
                    # A copy in the edge dialect may be a view of an expanded value in ATen.
                    node.target = torch.ops.aten.reshape.default
            elif writes and hasattr(node.meta.get("val"), "detach"):
                node.meta["val"] = node.meta["val"].detach()
        module.recompile()
    return rebuilt(with_parts(program, verifiers=[Verifier]), copy_graph(program.graph))


def given_constants(program: ExportedProgram, plan: MethodPlan) -> set[str]:
    """Return the constants that delegates are given as inputs, instead of having them inside.

    ExecuTorch can't copy a constant for each partition that reads it in a list.
    """
    nodes, given = {node.name: node for node in program.graph.nodes}, set()
    for partition in plan.partitions:
        for constant in partition.constants:
            node = nodes[constant.name]
            apart = any(reader.name not in partition.nodes for reader in node.users)
            in_list = any(node not in (*n.args, *n.kwargs.values()) for n in node.users)
            if not constant.inside or (apart and in_list):
                given.add(constant.name)
    return given


def _with_clones(program: ExportedProgram, plan: MethodPlan) -> ExportedProgram:
    """Clone the constants that delegates on another device are given; the program is changed.

    ExecuTorch copies an input to a device from planned memory, and a constant has none.
    """
    given, readers = given_constants(program, plan), dict[str, set[str]]()
    for partition in (own for own in plan.partitions if not own.device.memory.is_cpu):
        for constant in partition.constants:
            if constant.name in given and not constant.mutated:
                readers.setdefault(constant.name, set()).update(partition.nodes)
    graph = program.graph
    for node in [node for node in graph.nodes if node.name in readers]:
        names = readers[node.name]
        first = next(user for user in graph.nodes if user.name in names and user in node.users)
        with graph.inserting_before(first):
            clone = graph.call_function(torch.ops.aten.clone.default, (node,))
        clone.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(
            clone, lambda user, names=names: user.name in names, propagate_meta=False
        )
    if readers:
        program.graph_module.recompile()
    return program


def _with_new_bindings(program: ExportedProgram) -> ExportedProgram:
    """Trace a program again, so that its nodes name the symbols that depend on data.

    Passes of ExecuTorch made such symbols, and torch looks for them in the next trace.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            node.meta.pop("unbacked_bindings", None)
    with settled(fake_mode(program.graph.nodes)), guarded(HAND_BACK.name):
        traced: ExportedProgram = program.run_decompositions({})
    # The output node still names the symbols of the trace before.
    traced.graph.output_node().meta.clear()
    return traced
