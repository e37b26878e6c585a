"""Writes: programs that write one value to several buffers, which torch can't make functional.

A signature of torch's knows a new value by its node, so of two buffers with the same new value it
loses one, and takes the node that is left over for an output of the user's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram

from etdev.graph.rebuild import rebuilt

aten = torch.ops.aten


def decomposed(
    program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> ExportedProgram:
    """A program as `run_decompositions` gives it, each buffer with a new value of its own."""
    try:
        return program.run_decompositions(dict(table))  # type: ignore[no-any-return]
    except SpecViolationError:
        if not any(node.target == aten.copy_.default for node in program.graph.nodes):
            raise
    own = _with_own_values(program)
    return own.run_decompositions(dict(table))  # type: ignore[no-any-return]


def _with_own_values(program: ExportedProgram) -> ExportedProgram:
    """The program with a copy of each value that it writes to a buffer."""
    graph = copy.deepcopy(program.graph)
    for before, node in zip(program.graph.nodes, list(graph.nodes), strict=True):
        # A copy of `input` is called `input_1`, and the signature names it.
        node.name = before.name
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, source = node.args[:2]
        with graph.inserting_before(node):
            own = graph.call_function(aten.clone.default, (source,))
        own.meta = dict(source.meta)
        node.args = (target, own, *node.args[2:])
    return rebuilt(program, graph, program.graph_signature, program.graph_module)
