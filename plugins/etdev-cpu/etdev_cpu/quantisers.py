"""Quantisers that XNNPACK reads as PyTorch does, and float ops next to them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from executorch.backends.xnnpack.utils.quant_utils import (
    is_dequant,
    is_dynamic_qdq,
    is_per_channel,
    is_per_channel_group,
    is_qparam,
    is_quant,
)
from torch.fx import Node

from etdev_cpu.layers import (
    CONVOLUTION,
    LAYERS,
    NORM,
    argument,
    chain,
    is_layer,
    is_one_dimensional,
    shape_of,
    short,
)

# A short code to group by, and the reason in words.
Reason = tuple[str, str]
ZERO_POINTS: Reason = "zero point", "XNNPACK takes the zero points of weights for 0"
_PAD = "constant_pad_nd"
# XNNPACK unpacks groups of 4-bit weights in blocks of this size.
_BLOCK = 32
# The least value of a 4-bit weight, by which XNNPACK knows one.
_FOUR_BITS = -8
# Activations that XNNPACK fuses into a layer.
_ALONG = ("relu", "hardtanh", "clamp")


def is_quantiser(node: Node) -> bool:
    """Return True if a node changes between floats and the integers that stand for them."""
    return bool(is_quant(node) or is_dequant(node) or is_qparam(node))


def parameter(quantiser: Node, name: str) -> int:
    """Return the position of an argument of a quantiser by its name, or by the one in plural."""
    op: Any = quantiser.target
    names = [argument.name.removesuffix("s") for argument in op._schema.arguments]
    return names.index(name)


def quantiser_problem(node: Node) -> Reason | None:
    """Return why XNNPACK computes something else for a quantiser or dequantiser."""
    source = node.all_input_nodes[0]
    static = "per_tensor" in short(node) and not is_dynamic_qdq(node)
    if is_quant(node) and static:
        # An op that makes quantised tensors has no range.
        limits = node.args[3:6]
        if limits != (-128, 127, torch.int8):
            others = " to ".join(map(str, limits[:2]))
            return "range", f"XNNPACK quantises to all of int8, not to {others}"
    if is_dequant(node) and is_quant(source) and node.args[1:3] != source.args[1:3]:
        return "quantised", "XNNPACK ignores that its scale is not the quantiser's"
    return None


def quantised_problem(node: Node, match: Collection[Node]) -> Reason | None:
    """Return why XNNPACK can't compute an op of quantised values in a match."""
    if not is_layer(node):
        return None
    act, weight = (argument(node, index) for index in LAYERS[short(node)][:2])
    for dequantiser in (n for n in chain(weight) if is_dequant(n) and n in match):
        if is_weight_only(node):
            return _weight_only_problem(dequantiser)
        if act is None or not is_dequant(act):
            return "quantised", "XNNPACK has no such layer of a quantised weight and a float input"
        four_bits, row = _FOUR_BITS in dequantiser.args, shape_of(dequantiser)[-1]
        group = row
        if is_per_channel_group(dequantiser):
            group = row // max(shape_of(dequantiser.all_input_nodes[1])[-1], 1)
        if group != row and not four_bits:
            return "blocks", "XNNPACK has groups of 4-bit weights only"
        if group == row and not four_bits and dequantiser.meta["val"].dtype is torch.float16:
            return "dtype", "XNNPACK can't load 8-bit weights of a float16 layer"
        if is_per_channel_group(dequantiser) and four_bits and group % _BLOCK:
            return "blocks", f"XNNPACK needs groups of a multiple of {_BLOCK} 4-bit weights"
        if is_per_channel(dequantiser) and four_bits and row % 2:
            return "channels", "XNNPACK misreads 4-bit weights of an odd number of channels"
    return None


def is_weight_only(layer: Node) -> bool:
    """Return True for a linear layer of floats whose weight is stored in integers."""
    if short(layer) != "linear":
        return False
    act, weight = argument(layer, 0), argument(layer, 1)
    return weight is not None and bool(is_dequant(weight)) and not is_dequant(act)


def _weight_only_problem(dequantiser: Node) -> Reason | None:
    """Return why XNNPACK has no layer of a float input with this dequantiser of its weight."""
    integers = dequantiser.all_input_nodes[0].meta["val"]
    if (integers.dtype, dequantiser.meta["val"].dtype) != (torch.int8, torch.float32):
        return "quantised", "XNNPACK has float layers of weights in int8 for float32 only"
    if short(dequantiser) == "dequantize_per_tensor":
        return None if dequantiser.args[2] == 0 else ZERO_POINTS
    if not is_per_channel(dequantiser):
        return "quantised", "XNNPACK has float layers of weights with one scale an output only"
    if short(dequantiser) == "dequantize_per_channel" and dequantiser.args[3] != 0:
        return "channels", "XNNPACK has scales of a weight for its outputs only"
    scales = shape_of(dequantiser.all_input_nodes[1])
    if is_per_channel_group(dequantiser) and len(scales) > 1 and scales[-1] > 1:
        return "blocks", "XNNPACK has float layers of weights with one scale an output only"
    return None


def scales_of_bias(layer: Node) -> object | None:
    """Return the scales by which XNNPACK quantises the bias of a layer; None if it doesn't."""
    act, weight, bias = (argument(layer, place) for place in LAYERS[short(layer)])
    if bias is None or act is None or not is_dequant(act) or is_dynamic_qdq(act):
        return None
    return act.args[1:3], *(n.args[1:] for n in chain(weight) if is_dequant(n))


def read_elsewhere(groups: Sequence[list[Node]], implicit: Collection[str]) -> dict[str, Reason]:
    """Return why layers can't have a dequantiser that other ops read, by the layers' nodes.

    XNNPACK leaves out an implicit dequantiser, so the other ops would read its integers.

    Args:
        groups: Atomic groups.
        implicit: Names of the nodes that their layer makes unnecessary.
    """
    problems: dict[str, Reason] = {}
    kept = [group for group in groups if len(group) > 1]
    while unsound := [group for group in kept if _leaks(group, kept, implicit)]:
        kept = [group for group in kept if group not in unsound]
        text = "its dequantiser is read by other ops too, and XNNPACK would leave it out"
        problems.update((node.name, ("shared", text)) for group in unsound for node in group)
    return problems


def _leaks(group: list[Node], kept: Sequence[list[Node]], implicit: Collection[str]) -> bool:
    for node in group:
        if node.name in implicit and is_dequant(node) and len(node.users) > 1:
            inside = {other for peers in kept if node in peers for other in peers}
            if not inside.issuperset(node.users):
                return True
    return False


def beside_integers(node: Node) -> Reason | None:
    """Return why XNNPACK can't have a node whose input was quantised, or whose result is."""
    op, source = short(node), node.args[0] if node.args else None
    given = isinstance(source, Node) and is_dequant(source)
    if op == _PAD and given and not _stays_quantised(node, list(node.users)):
        return "quantised", "XNNPACK takes what is padded for integers, as its input was"
    if op in (NORM, CONVOLUTION) and is_one_dimensional(node):
        floats = op == NORM or not is_dequant(node.args[1])
        if floats and (given or all(map(is_quant, _readers(node)))):
            return "quantised", "XNNPACK can't compile a one-dimensional float layer of integers"
    return None


def pads_integers(pad: Node) -> bool:
    """Return True if a pad between a dequantiser and a quantiser may pad the integers instead."""
    source, amounts = pad.args[:2]  # type: Any, Any
    users = list(pad.users)
    between = isinstance(source, Node) and is_dequant(source) and all(map(is_quant, users))
    same = between and [source.args[1:6]] == [user.args[1:6] for user in users]
    return same and _adds_zeros(pad) and all(isinstance(amount, int) for amount in amounts)


def _stays_quantised(pad: Node, users: Sequence[Node]) -> bool:
    """Return True if what reads a pad takes it for integers, or XNNPACK doesn't."""
    layers = (short(user) == CONVOLUTION and is_dequant(user.args[1]) for user in users)
    return not _adds_zeros(pad) or all(map(is_quant, users)) or all(layers)


def _adds_zeros(pad: Node) -> bool:
    """Return True if a pad adds zeros and crops nothing, as far as its amounts are known."""
    amounts: Any
    amounts, value = (*pad.args[1:], 0.0)[:2]
    return not value and not any(isinstance(a, int) and a < 0 for a in amounts)


def _readers(layer: Node) -> list[Node]:
    """Return the nodes that read a layer's result, after its fused activation."""
    users = list(layer.users)
    while len(users) == 1 and (users[0].target is operator.getitem or short(users[0]) in _ALONG):
        users = list(users[0].users)
    return users
