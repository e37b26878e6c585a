"""Checks: what eager PyTorch raises after it has computed something, which no kernel does."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx import Graph

from etdev.graph.ops import ORDERED
from etdev.graph.rebuild import copy_graph, rebuilt

# Whether a matrix could be inverted or factorised. What is computed of one that can't is infinite
# or NaN.
_CHECKS = (torch.ops.aten._linalg_check_errors.default,)
# Whether what they read holds. Without them, what is computed for them alone has no reader.
_ASSERTIONS = (torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)


def without_checks(program: ExportedProgram) -> ExportedProgram:
    """A program without the checks of matrices and without assertions of tensors.

    ExecuTorch leaves out assertions while it emits a program, when delegates are compiled.

    Args:
        program: An ATen program; not changed.
    """
    checked = any(node.args[1] in _CHECKS for node in _ordered(program.graph))
    if not checked and not _assertions(program.graph):
        return program
    graph = copy_graph(program.graph)
    for node in _assertions(graph):
        graph.erase_node(node)
    for node in _ordered(graph):
        if node.args[1] in _CHECKS:
            for token in list(node.users):
                token.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
                graph.erase_node(token)
            graph.erase_node(node)
    signature = program.graph_signature
    if not _ordered(graph):
        signature = _without_tokens(graph, signature)
    graph.eliminate_dead_code()
    return rebuilt(program, graph, signature, program.graph_module)


def _assertions(graph: Graph) -> list[torch.fx.Node]:
    return [node for op in _ASSERTIONS for node in graph.find_nodes(op="call_function", target=op)]


def _ordered(graph: Graph) -> list[torch.fx.Node]:
    return graph.find_nodes(op="call_function", target=ORDERED)


def _without_tokens(graph: Graph, signature: ExportGraphSignature) -> ExportGraphSignature:
    """Take the token out of a graph that orders nothing with it; returns the new signature."""
    inputs, outputs = signature.input_specs, signature.output_specs
    (output,) = graph.find_nodes(op="output")
    kept = [i for i, spec in enumerate(outputs) if spec.kind != OutputKind.TOKEN]
    output.args = (tuple(output.args[0][index] for index in kept),)
    tokens = {spec.arg.name for spec in inputs if spec.kind == InputKind.TOKEN}
    for node in graph.find_nodes(op="placeholder"):
        if node.name in tokens:
            graph.erase_node(node)
    return ExportGraphSignature(
        [spec for spec in inputs if spec.kind != InputKind.TOKEN],
        [outputs[index] for index in kept],
    )
