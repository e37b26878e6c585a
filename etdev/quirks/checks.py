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
QUIRKS = (MATRIX_CHECKS,)
