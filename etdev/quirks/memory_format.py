"""Orders of dimensions in memory that the runtime, its kernels or a compiler doesn't take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.layout import (
    has_plain_order,
    mixing_convolutions,
    traced_contiguous,
    with_contiguous_weights,
)
from etdev.graph.ops import owner_of, written_by
from etdev.graph.rebuild import with_changed
from etdev.graph.signature import unwritten_constants
from etdev.schema.quirk import Nodes, Quirk, Rejection
from etdev.schema.stages import DECOMPOSE, FINISH, PREPARE, TO_EDGE
from etdev.upstream.operators import base_name

# Ops that always return a view.
_VIEWS = {
    *("alias", "detach", "diagonal", "expand", "getitem", "permute", "select", "slice", "split"),
    *("squeeze", "t", "transpose", "unbind", "unsqueeze", "view"),
}
# Ops that give their result the order of their input, unless they are told another one.
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default)
# Ops that say where in memory a value is.
_PLACES = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)


def strided_inputs(program: ExportedProgram) -> list[Node]:
    """Return inputs and constants neither contiguous nor channels last, and ops on volumes."""
    signature = program.graph_signature
    constants = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    # What the method writes keeps its memory.
    written = constants.difference(unwritten_constants(program))
    inputs = program.graph.find_nodes(op="placeholder")
    strided = [node for node in inputs if not has_plain_order(node.meta.get("val"))]
    volumes = [
        node
        for node in program.graph.nodes
        if torch.channels_last_3d in (*node.args, *node.kwargs.values())
    ]
    return [node for node in strided if node.name not in written] + volumes


def make_contiguous(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Make inputs and constants contiguous, and all volumes.

    Raises:
        RuntimeError | ValueError: What the program computes depends on their order.
    """
    if any(node.target in _PLACES for node in program.graph.nodes):
        raise ValueError("as_strided reads memory directly")
    names = {node.name for node in found if node.op == "placeholder"}
    return traced_contiguous(program, names)


def _reads_a_view(node: Node) -> bool:
    """Return True if `as_strided` reads the memory behind a view, or memory in another order."""
    view: Any = node.args[0]
    values = [view.meta["val"], owner_of(view).meta["val"]]
    # One of all elements in order lies in memory as its owner does.
    same = str(values[0].numel()) == str(values[1].numel())
    return not (same and all(value.is_contiguous() for value in values))


def _read_owner(node: Node) -> None:
    """Have `as_strided` read the tensor that the view is of."""
    view: Any = node.args[0]
    owner, chain = owner_of(view), [view]
    while chain[-1] is not owner:
        chain.append(chain[-1].all_input_nodes[0])
    whole = owner.meta["val"]
    if not whole.is_contiguous() or not all(base_name(n.target) in _VIEWS for n in chain[:-1]):
        raise ValueError(f"{owner.name} may be laid out differently")
    size, stride, start = (*node.args[1:], None)[:3]
    place = view.meta["val"].storage_offset() - whole.storage_offset() if start is None else start
    node.args = (owner, size, stride, place)


def views_of_attention(program: ExportedProgram) -> list[Node]:
    """Return the views of what attention returns, unless something writes to that memory."""
    nodes = program.graph.nodes
    written = {owner_of(value) for node in nodes for value in written_by(node)}
    owners = {node: owner_of(node) for node in nodes if node.target == torch.ops.aten.view.default}
    attention = torch.ops.aten.scaled_dot_product_attention.default
    return [v for v, own in owners.items() if own.target == attention and own not in written]


def _reshape(view: Node) -> None:
    """Copy the viewed values where they lie in memory in another order."""
    view.target = torch.ops.aten.reshape.default


def _keeps_an_unknown_order(node: Node) -> bool:
    """Return True if a copy keeps an order that no `torch.memory_format` stands for.

    Views become copies, which are contiguous.
    """
    source: Any = node.args[0]
    told = node.kwargs.get("memory_format") not in (None, torch.preserve_format)
    return not told and owner_of(source) is source and not has_plain_order(source.meta.get("val"))


def _copy_contiguous(copy: Node) -> None:
    copy.kwargs = {**copy.kwargs, "memory_format": torch.contiguous_format}
    copy.meta["val"] = copy.meta["val"].contiguous()


VIEWED_ATTENTION = Quirk(
    name="viewed-attention",
    stage=PREPARE,
    summary="Attention that is decomposed has its result in another order in memory than the op "
    "itself, so that a view of its batch and positions fails.",
    upstream="pytorch/pytorch#136543; torch/_decomp/decompositions.py, "
    "scaled_dot_product_flash_attention_for_cpu",
    find=views_of_attention,
    fix=partial(with_changed, change=_reshape),
)
STRIDED_VIEWS = Quirk(
    name="strided-views",
    stage=(DECOMPOSE, FINISH),
    summary="A view is copied first, and `as_strided` reads the copy as if it lay in memory like "
    "the view.",
    upstream="pytorch/pytorch#104505, #120585; torch/_functorch/_aot_autograd and "
    "executorch/exir/passes/replace_broken_ops_with_function_ops_pass.py",
    find=Nodes((torch.ops.aten.as_strided.default,), _reads_a_view),
    fix=partial(with_changed, change=_read_owner),
    refusal=Rejection(
        "as_strided{where} reads memory that a .pte lays out differently ({why})",
        "take views with slices and reshapes instead",
    ),
)
STRIDED_INPUTS = Quirk(
    name="strided-inputs",
    stage=PREPARE,
    summary="An input or weight that is neither contiguous nor channels last has its order written "
    "into the .pte, the runtime reads a contiguous one in that order, and no kernel knows volumes "
    "that are channels last.",
    upstream="pytorch/executorch#18562; executorch/runtime/executor/method.cpp, "
    "Method::set_input, and executorch/runtime/core/exec_aten/util/dim_order_util.h, "
    "is_channels_last_dim_order",
    find=strided_inputs,
    fix=make_contiguous,
    refusal=Rejection(
        "{names} of method {method!r} would have to be contiguous, which it can't be traced with "
        "({why})",
        "export it with contiguous inputs and weights",
    ),
)
CHANNELS_LAST_WEIGHTS = Quirk(
    name="channels-last-weights",
    stage=PREPARE,
    summary="A convolution fails on a weight that is channels last with an input that is not.",
    upstream="report written 2026-11-27; "
    "executorch/kernels/portable/cpu/util/kernel_ops_util.cpp, check_convolution_args",
    find=lambda program: mixing_convolutions(program.graph),
    fix=lambda program, _: with_contiguous_weights(program),
)
UNKNOWN_COPIES = Quirk(
    name="unknown-copies",
    stage=TO_EDGE,
    summary="A copy or cast of a value in a memory order other than contiguous or channels last, "
    "such as the result of `nonzero`, can't be converted.",
    upstream="report written 2026-11-29; executorch/exir/dim_order_utils.py, get_memory_format",
    find=Nodes(_COPIES, _keeps_an_unknown_order, branches=True),
    fix=partial(with_changed, change=_copy_contiguous),
)
QUIRKS = (
    STRIDED_INPUTS,
    CHANNELS_LAST_WEIGHTS,
    STRIDED_VIEWS,
    VIEWED_ATTENTION,
    UNKNOWN_COPIES,
)
