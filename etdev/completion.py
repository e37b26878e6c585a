"""Completion: programs for ExecuTorch's own loop, with what it lacks written in ops that it has.

A Partitioner may not change the program that it partitions, but an ATen program before that. So
what `Lowerer` would decide is written down in ATen ops, and ExecuTorch converts it as any other.
"""

from __future__ import annotations

import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.tracer import _default_decomposition_table
from torch._export.verifier import Verifier
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, Node

from etdev.delegate.control_flow import keep_results, overwritten_results
from etdev.edge import state
from etdev.edge.branch_constants import with_given_constants
from etdev.edge.causes import name_cause
from etdev.edge.conversion import Conversion
from etdev.edge.expander import expander_of
from etdev.edge.keep_whole import Wishes, take_marks
from etdev.edge.opset import Opset
from etdev.edge.shifts import with_multiplied_shifts
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import calls_in, graph_modules, is_complex
from etdev.graph.ops import aten_op
from etdev.graph.rebuild import copy_graph, rebuilt, with_changed
from etdev.graph.signature import renamed
from etdev.graph.symbols import fake_mode, settled, unbacked, with_own_symbols
from etdev.lowering.composition import NO_PLUGIN, Composition
from etdev.planner.unclaimed import refuse_unclaimed
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.upstream.call import guarded


def completed(program: ExportedProgram, method: str, composition: Composition) -> ExportedProgram:
    """A program that ExecuTorch converts into what portable kernels and the plugins compute.

    Args:
        program: An ATen program; it is not changed.
        method: Its name.
        composition: The plugins that are asked, and the rules.

    Raises:
        EtdevError: As for `Lowerer`, if it would be refused there.
    """
    config = EdgeCompileConfig(_skip_dim_order=True)
    program = with_multiplied_shifts(_with_indexed_masks(program))
    if not _lacks(with_own_symbols(program), method, composition, config):
        return program
    own = with_own_symbols(program)
    with settled(fake_mode(own.graph.nodes)):
        decided = _decided(own, method, composition, config)
    values = [node.meta.get("val") for node in decided.graph.nodes]
    written = _as_aten(decided)
    return _with_new_bindings(written) if unbacked(values) else written


def _with_new_bindings(program: ExportedProgram) -> ExportedProgram:
    """Trace a program whose passes did not note which node binds a symbol that depends on data.

    ExecuTorch will trace it once more, when torch looks for the symbols that were noted.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            node.meta.pop("unbacked_bindings", None)
    with settled(fake_mode(program.graph.nodes)):
        traced: ExportedProgram = guarded(
            "edge conversion",
            lambda: program.run_decompositions({}),
            lambda error: name_cause([program], error),
        )
    # Which is said to bind the symbols of the trace before.
    traced.graph.output_node().meta.clear()
    return traced


def _with_indexed_masks(program: ExportedProgram) -> ExportedProgram:
    """Select by masks as indexing does, since `masked_select` is not Core ATen."""
    select = torch.ops.aten.masked_select.default
    nodes = [
        node
        for node in program.graph.find_nodes(op="call_function", target=select)
        if len({str(argument.meta["val"].shape) for argument in node.args}) == 1
    ]
    return with_changed(program, nodes, _index)


def _index(graph: Graph, node: Node) -> None:
    node.target, node.args = torch.ops.aten.index.Tensor, (node.args[0], [node.args[1]])


def _decided(
    program: ExportedProgram, method: str, composition: Composition, config: EdgeCompileConfig
) -> ExportedProgram:
    apply, asked = composition.quirks.apply, composition.plugins
    expander = expander_of(config, asked, apply=apply)
    conversion = Conversion(asked, config, expander, False, False, apply)
    manager = guarded(
        "edge conversion",
        lambda: conversion.to_edge({method: program}),
        lambda error: name_cause([program], error),
    )
    edge = manager.exported_program(method)
    plan, decided = composition.planner(expander).plan(edge, method, take_marks(edge))
    refuse_unclaimed("edge conversion", [plan], NO_PLUGIN)
    return decided


def _lacks(
    program: ExportedProgram, method: str, composition: Composition, config: EdgeCompileConfig
) -> bool:
    """Return True if ExecuTorch's own conversion fails, or gives what no kernel can do."""
    # ExecuTorch mixes up the constants that it makes for a method without inputs.
    if not program.graph_signature.user_inputs:
        return True
    builtin = [plugin for plugin in composition.plugins if plugin.builtin]
    wishes = Wishes(program, method, composition.plugins)
    table = _default_decomposition_table()
    try:
        decomposed = program.run_decompositions(
            {op: pieces for op, pieces in table.items() if op not in wishes.decomposed}
        )
    except Exception:
        # The conversion says why, by name.
        return True
    if state.unkept(decomposed):
        return True
    opset, modules = Opset(config, wishes.ops), graph_modules(decomposed.graph_module)
    if any(overwritten_results(module.graph) for module in modules):
        return True
    if any(
        is_complex(node)
        or (isinstance(node.target, OpOverload) and not opset.has(node.target))
        or (
            node.target in wishes.decomposed
            and answers.decompose(composition.plugins, node, config) is not None
        )
        for node in calls_in(decomposed.graph_module)
    ):
        return True
    return any(_refused(plugin, MethodGraph(decomposed, method), config) for plugin in builtin)


def _refused(plugin: Plugin, graph: MethodGraph, config: EdgeCompileConfig) -> bool:
    """Return True if a built-in plugin, whose claims stay in the program, refuses a node."""
    claims = answers.claim_nodes(plugin, graph, {}, {}, config)
    return any(claim.refusals for claim in claims)


def _as_aten(program: ExportedProgram) -> ExportedProgram:
    """Write an edge-dialect program, which is changed, in the ops that it was converted from."""
    clones = keep_results(program.graph, dict(program.graph_module.named_children()))
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = aten_op(node.target)
                if node.target == torch.ops.aten.view.default:
                    # What was a copy is a view now, such as of an expanded value.
                    node.target = torch.ops.aten.reshape.default
        module.recompile()
    # The constructor verifies what it is given.
    program._verifiers = [Verifier]
    names = {result.name: clone.name for result, clone in clones.items()}
    old = program.graph_signature
    outputs = [renamed(spec, names) for spec in old.output_specs]
    signature = ExportGraphSignature(list(old.input_specs), outputs)
    graph = copy_graph(program.graph)
    return with_given_constants(rebuilt(program, graph, signature, program.graph_module))
