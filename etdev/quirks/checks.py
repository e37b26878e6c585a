"""Checks of values, which eager PyTorch raises after it has computed something."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.fx import Graph, Node

from etdev.graph.ops import ORDERED
from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.schema.quirk import Nodes, Quirk, Stage

# What is computed of a matrix that can't be inverted or factorised is infinite or NaN.
_CHECK = torch.ops.aten._linalg_check_errors.default
_ASSERTIONS = (torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)


def _checks_matrix(ordered: Node) -> bool:
    return ordered.args[1] is _CHECK


def without_checks(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Take calls that check a matrix, in an order given by tokens, out of a program."""
    names, graph = {node.name for node in found}, copy_graph(program.graph)
    for node in [node for node in graph.nodes if node.name in names]:
        for token in list(node.users):
            token.replace_all_uses_with(node.args[0])
            graph.erase_node(token)
        graph.erase_node(node)
    signature = program.graph_signature
    if not graph.find_nodes(op="call_function", target=ORDERED):
        signature = _without_tokens(graph, signature)
    graph.eliminate_dead_code()
    return rebuilt(program, graph, signature, program.graph_module)


def without_assertions(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Take assertions out of a program, with what is computed for them alone."""
    names, graph = {node.name for node in found}, copy_graph(program.graph)
    for node in [node for node in graph.nodes if node.name in names]:
        graph.erase_node(node)
    graph.eliminate_dead_code()
    return rebuilt(program, graph, program.graph_signature, program.graph_module)


def _without_tokens(graph: Graph, signature: ExportGraphSignature) -> ExportGraphSignature:
    """Take the token out of a graph that orders nothing with it, and return the new signature."""
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


MATRIX_CHECKS = Quirk(
    name="matrix-checks",
    stage=Stage.FUNCTIONAL,
    summary="The check that a matrix could be factorised is an op with effects, without a kernel.",
    upstream="not reported; torch/_higher_order_ops/effects.py, with_effects, and "
    "executorch/exir/verification/verifier.py, check_valid_op",
    affects="executorch<1.6",
    find=Nodes((ORDERED,), _checks_matrix),
    fix=without_checks,
)
ASSERTED_TENSORS = Quirk(
    name="asserted-tensors",
    stage=Stage.FUNCTIONAL,
    summary="Assertions of tensors leave the program while it is emitted, after delegates have "
    "been compiled that compute what they read.",
    upstream="not reported; executorch/exir/passes/remove_graph_asserts_pass.py, "
    "RemoveGraphAssertsPass.call",
    affects="executorch<1.6",
    find=Nodes(_ASSERTIONS),
    fix=without_assertions,
)
QUIRKS = (MATRIX_CHECKS, ASSERTED_TENSORS)
