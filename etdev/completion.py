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
from etdev.edge import kernels, state
from etdev.edge.branch_constants import with_given_constants
from etdev.edge.causes import name_cause
from etdev.edge.conversion import Conversion
from etdev.edge.expander import expander_of
from etdev.edge.formulas import corrections
from etdev.edge.opset import Opset
from etdev.edge.shifts import with_multiplied_shifts
from etdev.graph.nodes import calls_in, graph_modules, is_complex
from etdev.graph.ops import aten_op
from etdev.graph.rebuild import copy_graph, rebuilt, with_changed
from etdev.graph.signature import renamed
from etdev.graph.symbols import fake_mode, settled, unbacked, with_own_symbols
from etdev.lowering.composition import Composition
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
    if not _lacks(with_own_symbols(program), config):
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
    apply = composition.quirks.apply
    expander = expander_of(config, apply=apply)
    asked = composition.plugins
    conversion = Conversion(asked, config, expander, False, False, apply)
    manager = guarded(
        "edge conversion",
        lambda: conversion.to_edge({method: program}),
        lambda error: name_cause([program], error),
    )
    edge = manager.exported_program(method)
    names = [plugin.name for plugin in asked]
    whole = kernels.wanted_whole(edge, names, config)
    plan, decided = composition.planner(expander).plan(edge, method, whole)
    kernels.refuse_unfit(decided, plan.fallback, whole, expander)
    return decided


def _lacks(program: ExportedProgram, config: EdgeCompileConfig) -> bool:
    """Whether ExecuTorch's own conversion fails, or gives what kernels or its memory can't do."""
    # ExecuTorch mixes up the constants that it makes for a method without inputs.
    alone = not program.graph_signature.user_inputs
    names = {getattr(n.target, "_opname", "").removesuffix("_") for n in program.graph.nodes}
    if alone or not names.isdisjoint((*corrections.WRONG, *corrections.LENIENT)):
        return True
    try:
        decomposed = program.run_decompositions(_default_decomposition_table())
    except Exception:
        # The conversion says why, by name.
        return True
    if state.unkept(decomposed):
        return True
    opset, modules = Opset(config), graph_modules(decomposed.graph_module)
    return any(overwritten_results(module.graph) for module in modules) or any(
        kernels.fails(node)
        or is_complex(node)
        or _is_misverified(node)
        or (isinstance(node.target, OpOverload) and not opset.has(node.target))
        for node in calls_in(decomposed.graph_module)
    )


def _is_misverified(node: Node) -> bool:
    """Whether ExecuTorch would fix a dynamic size; see `corrections`."""
    split = node.target is torch.ops.aten.split_with_sizes.default
    return split and not isinstance(node.meta["val"][0].shape[0], int)


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
