"""Empty weights: constants without elements are made by the program instead of stored.

ExecuTorch gives a constant without bytes no place in the .pte, and its runtime refuses to load it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from etdev.graph.rebuild import copy_graph, rebuilt
from etdev.graph.signature import renamed, unwritten_constants


def with_made_empties(program: ExportedProgram) -> ExportedProgram:
    """Make each constant that has no elements where it is read first.

    Args:
        program: A functional ATen program; it is not changed.
    """
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    empty = {name for name in unwritten_constants(program) if _is_empty(nodes[name].meta["val"])}
    if not empty:
        return program
    graph, names = copy_graph(program.graph), {}
    for node in graph.find_nodes(op="placeholder"):
        if node.name in empty:
            value = node.meta["val"]
            first = min(node.users, default=graph.output_node())
            with graph.inserting_before(first):
                made = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}
                )
            made.meta = {"val": value, "stack_trace": first.meta.get("stack_trace")}
            node.replace_all_uses_with(made)
            names[node.name] = made.name
            graph.erase_node(node)
    inputs = [spec for spec in program.graph_signature.input_specs if _name(spec) not in empty]
    outputs = [renamed(spec, names) for spec in program.graph_signature.output_specs]
    signature = ExportGraphSignature(inputs, outputs)
    return rebuilt(program, graph, signature, program.graph_module)


def _is_empty(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and 0 in value.shape


def _name(spec: Any) -> str | None:
    return getattr(spec.arg, "name", None)
