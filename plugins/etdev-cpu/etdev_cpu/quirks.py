"""Faults of XNNPACK's compiler that etdev fixes before plugins are asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from etdev.graph import channels_last_weights, with_contiguous_weights
from etdev.quirks import HAND_BACK, PREPARE, Nodes, OwnProgram, Quirk
from etdev_cpu.layers import NORM, short
from etdev_cpu.own_dequantisers import give_own_dequantisers, is_shared
from etdev_cpu.own_weights import give_own_weights, sharing_bias

XNNPACK_CHANNELS_LAST_WEIGHTS = Quirk(
    name="xnnpack-channels-last-weights",
    stage=PREPARE,
    summary="XNNPACK's compiler fails on the weight of a convolution that is stored channels last.",
    upstream="report written 2026-11-27; executorch/backends/xnnpack/operators/node_visitor.py, "
    "get_serialized_buffer_index",
    find=channels_last_weights,
    fix=lambda program, _: with_contiguous_weights(program),
)
NORMS_WITHOUT_WEIGHTS = Quirk(
    name="norms-without-weights",
    # `Lowerer` does it when a partition is compiled.
    stage=HAND_BACK,
    summary="XNNPACK's compiler gives batch norms without weights those of the first one.",
    upstream="report written 2026-11-27; "
    "executorch/backends/xnnpack/_passes/decompose_batch_norm.py, DecomposeBatchNorm",
    find=Nodes(only=lambda node: short(node) == NORM and node.args[1] is None),
    fix=lambda program, _: give_own_weights(program),
)
BOUNDS_LEFT_OUT = Quirk(
    name="bounds-left-out",
    # `Lowerer` writes the bound when a partition is compiled.
    stage=HAND_BACK,
    summary="XNNPACK's compiler fails on hardtanh without its upper bound, which torch leaves out.",
    upstream="report written 2026-11-27; executorch/backends/xnnpack/operators/op_hardtanh.py, "
    "define_node, and executorch/backends/xnnpack/_passes/fuse_activation_pass.py, "
    "get_output_min_max_from_activation",
    find=Nodes(only=lambda node: short(node) == "hardtanh" and len(node.args) == 2),
    fix=lambda program, nodes: _clamped(program, nodes),
)
SHARED_DEQUANTISERS = Quirk(
    name="shared-dequantisers",
    # `Lowerer` does it when a partition is compiled.
    stage=HAND_BACK,
    summary="XNNPACK's compiler mixes up the memory orders of a quantised image with several "
    "readers of its floats.",
    upstream="report written 2026-11-27; "
    "executorch/backends/xnnpack/_passes/channels_last_tagged_reshape_pass.py, insert_copy_q_dq",
    find=Nodes(only=is_shared),
    fix=lambda program, _: give_own_dequantisers(program, alone=lambda _: True),
)
SHARED_BIASES = Quirk(
    name="quantised-layers-called-twice",
    # `Lowerer` does it when a partition is compiled.
    stage=HAND_BACK,
    summary="XNNPACK's compiler gives quantised layers that share a bias the one of the first.",
    upstream="report written 2026-11-28; executorch/backends/xnnpack/operators/node_visitor.py, "
    "get_serialized_buffer_index, and op_conv2d.py, define_node",
    find=sharing_bias,
    fix=lambda program, _: give_own_weights(program),
)
QUIRKS = (
    *(XNNPACK_CHANNELS_LAST_WEIGHTS, NORMS_WITHOUT_WEIGHTS, BOUNDS_LEFT_OUT, SHARED_DEQUANTISERS),
    SHARED_BIASES,
)


def _clamped(program: OwnProgram, nodes: Sequence[Node]) -> OwnProgram:
    for node in nodes:
        node.target, node.args = torch.ops.aten.clamp.default, (*node.args, 1.0)
    return program
