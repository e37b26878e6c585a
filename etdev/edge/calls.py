"""Calls: modules in eager PyTorch, called on copies so that nothing of the caller's changes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.upstream.operators import overload_of, schema_of
from etdev.upstream.trees import pytree


def written(program: ExportedProgram) -> Iterator[str]:
    """Names of the buffers and parameters that a program writes to."""
    signature = program.graph_signature
    yield from (spec.target for spec in signature.output_specs if spec.target)
    constants = {spec.arg.name: spec.target for spec in signature.input_specs if spec.target}
    for node in program.graph.nodes:
        op = overload_of(node.target)
        for argument, parameter in zip(
            node.args, schema_of(op).arguments if op else (), strict=False
        ):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                yield constants.get(_base(argument), "")


def _base(value: Any) -> str:
    """The node that a node is a view of, or itself."""
    while isinstance(value, Node) and value.op == "call_function" and value.args:
        value = value.args[0]
    return value.name if isinstance(value, Node) else ""


def duplicate(module: torch.nn.Module, mutated: Mapping[str, Any]) -> torch.nn.Module:
    """Copy a module whose calls may change it, without copying the weights that no call writes."""
    named = module.named_parameters(remove_duplicate=False)
    shared = {id(parameter): parameter for name, parameter in named if name not in mutated}
    return copy.deepcopy(module, shared)


def called(
    module: torch.nn.Module, leaves: Sequence[Any], structure: pytree.TreeSpec
) -> tuple[list[Any], list[Any]]:
    """Call a module in PyTorch on copies of some inputs.

    Returns:
        Its outputs and the inputs after the call, flat, in memory of their own.
    """
    own = copies(leaves)
    arguments, keywords = pytree.tree_unflatten(own, structure)
    with torch.no_grad():
        outputs = module(*arguments, **keywords)
    return copies(_given(pytree.tree_leaves(outputs))), _given(own)


def copies(values: Sequence[Any]) -> list[Any]:
    """Values in memory of their own."""
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]


def _given(values: Sequence[Any]) -> list[Any]:
    """Leaves without None, which a .pte has neither as input nor as output."""
    return [value for value in values if value is not None]
