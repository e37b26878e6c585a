"""Mixtures: float ops beside quantised ones that XNNPACK can't compile, or the runtime load."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from executorch.backends.xnnpack.utils.quant_utils import is_dequant, is_quant
from torch.fx import Node

from etdev_cpu.layers import CONVOLUTION, NORM, is_one_dimensional
from etdev_cpu.quantisers import Reason, short

_PAD = "constant_pad_nd"
# What XNNPACK computes along with a layer.
_ALONG = ("relu", "hardtanh", "clamp")


def beside_integers(node: Node) -> Reason | None:
    """Why XNNPACK can't have a node whose input was quantised, or whose result is."""
    op, source = short(node), node.args[0] if node.args else None
    given = isinstance(source, Node) and is_dequant(source)
    users = list(node.users)
    if op == _PAD and given and not _stays_quantised(node, users):
        return "quantised", "XNNPACK takes what is padded for integers, as its input was"
    if op in (NORM, CONVOLUTION) and is_one_dimensional(node):
        floats = op == NORM or not is_dequant(node.args[1])
        if floats and (given or all(map(is_quant, _readers(node)))):
            return "quantised", "XNNPACK can't compile a one-dimensional float layer of integers"
    return None


def _stays_quantised(pad: Node, users: Sequence[Node]) -> bool:
    """Whether what reads a pad takes it for integers, or XNNPACK doesn't."""
    amounts: Any
    amounts, value = (*pad.args[1:], 0.0)[:2]
    if value or any(isinstance(amount, int) and amount < 0 for amount in amounts):
        return True
    layers = (short(user) == CONVOLUTION and is_dequant(user.args[1]) for user in users)
    return all(map(is_quant, users)) or all(layers)


def _readers(layer: Node) -> list[Node]:
    """What reads a layer's result, after what is computed along with it."""
    users = list(layer.users)
    while len(users) == 1 and (users[0].target is operator.getitem or short(users[0]) in _ALONG):
        users = list(users[0].users)
    return users
