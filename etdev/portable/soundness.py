"""Tables of ops without a portable kernel, or whose portable kernel fails or is wrong.

Each row has a condition on the node, under which the kernel is not used, and the formula that
computes the op instead. They were found by running every op on the edge values of every dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch.fx import Node

from etdev.graph import aten_op, op_name
from etdev.portable import conditions as when
from etdev.portable.decompositions import (
    bags,
    doubles,
    halves,
    integers,
    kernels,
    linalg,
    order,
    pooling,
    quantisers,
    randoms,
    reductions,
    sampling,
    sizes,
    weighting,
)

aten = torch.ops.aten
_Formula = Callable[..., Any]
_Faults = Mapping[Any, tuple[Callable[[Node], bool], _Formula]]


@frozen
class Fault:
    """A reason not to give a node to its portable kernel.

    Args:
        code: `no-kernel` or `wrong`.
        text: The reason in words.
        formula: How the op is written in others.
        rare: The kernel is wrong for some values only, such as NaN.
    """

    code: str
    text: str
    formula: _Formula | None = field(default=None, eq=False)
    rare: bool = False

    def within(self, node: Node) -> Fault:
        """Return this fault, which a node in a branch has, for the op that has the branch."""
        if self.text.startswith("in a branch"):
            return self
        return evolve(self, text=f"in a branch, {op_name(node)} ({node.name}): {self.text}")


_TEXTS = {
    "no-kernel": "no portable kernel computes it",
    "wrong": "its portable kernel fails or is wrong for what it is given",
    "rarely-wrong": "its portable kernel is wrong for some values, such as NaN and large integers, "
    "or for empty tensors",
}


def fault_of(node: Node) -> Fault | None:
    """Return what is wrong with the kernel of a node; None if it is right."""
    # The ops of a library that may not be imported yet are in the tables by name.
    ops = (aten_op(node.target), op_name(node))
    for code, table in _TABLES.items():
        for applies, formula in (table[op] for op in ops if op in table):
            if applies(node):
                return Fault(code, _TEXTS[code], formula, rare=table is _RARELY_WRONG)
    return None


def _chosen(test: Callable[..., bool], formula: _Formula, otherwise: _Formula) -> _Formula:
    """Return a formula that is one of two, by a test of the positional arguments."""

    def either(*args: Any, **options: Any) -> Any:
        return (formula if test(*args) else otherwise)(*args, **options)

    return either


def _is_half(x: torch.Tensor, *_: Any) -> bool:
    return x.dtype in halves.DTYPES


def _is_floating(x: Any, y: Any) -> bool:
    return torch.result_type(x, y).is_floating_point


_volume = _chosen(_is_half, halves.convolution, kernels.convolution)
_variance = _chosen(_is_half, halves.widened(aten.var.correction), reductions.variance)
_remainder = _chosen(_is_floating, doubles.remainder, integers.remainder)
_floor_division = _chosen(_is_floating, kernels.floor_division, integers.floor_division)
_sum = _chosen(lambda x, *_: x.dim() == 0, kernels.sum_of_one, doubles.total)
_power = _chosen(lambda _, exponent: exponent in (0.5, -0.5), kernels.root, integers.power)


def _division(x: Any, y: Any, *, rounding_mode: str) -> torch.Tensor:
    formula = _floor_division if rounding_mode == "floor" else integers.truncated_division
    return formula(x, y, rounding_mode=rounding_mode)


_greatest = functools.partial(reductions.extreme_by_dim, op=torch.max)
_least = functools.partial(reductions.extreme_by_dim, op=torch.min)
_place_of_greatest = functools.partial(reductions.place_of_extreme, op=torch.argmax)
_place_of_least = functools.partial(reductions.place_of_extreme, op=torch.argmin)

# The runtime has no kernel.
_MISSING: _Faults = {
    aten.sort.default: (when.always, order.sort),
    aten.scatter_reduce.two: (when.always, reductions.scatter_reduce),
    aten.avg_pool3d.default: (when.always, pooling.avg_pool3d),
    aten.max_pool3d_with_indices.default: (when.always, pooling.max_pool3d),
    aten._adaptive_avg_pool3d.default: (when.always, pooling.adaptive_avg_pool),
    aten._embedding_bag.default: (when.first_is_read, bags.embedding_bag),
    aten.empty_strided.default: (when.always, kernels.empty_strided),
    "transformers.grouped_mm_fallback.default": (when.always, linalg.grouped_mm),
    aten.randperm.default: (when.always, randoms.randperm),
}
_WRONG: _Faults = {
    # The kernel fails.
    aten.convolution.default: (when.convolves_3d, _volume),
    aten._softmax.default: (when.half_to_float, kernels.softmax),
    aten.constant_pad_nd.default: (when.crops, kernels.cropped),
    aten.cumsum.default: (when.zero_dim, kernels.cumsum_of_one),
    **{op: (when.promotes, kernels.of_number(op)) for op in (aten.add.Scalar, aten.sub.Scalar)},
    torch.ops.dim_order_ops._to_dim_order_copy.default: (when.makes_complex, kernels.to_complex),
    aten._to_copy.default: (when.makes_complex, kernels.to_complex),
    # It takes the process down.
    aten.amax.default: (when.is_empty, reductions.extreme_of_empty),
    aten.amin.default: (when.is_empty, reductions.extreme_of_empty),
    aten.roll.default: (when.is_empty, kernels.roll),
    aten.sum.dim_IntList: (when.sum_fails, _sum),
    aten.unfold.default: (when.zero_dim, kernels.unfold_of_one),
    aten.unfold_copy.default: (when.zero_dim, kernels.unfold_of_one),
    aten.narrow.default: (when.negative_dim, kernels.narrow_copy),
    aten.narrow_copy.default: (when.negative_dim, kernels.narrow_copy),
    **{op: (when.scales_in_other_dtypes, quantisers.exact(op)) for op in quantisers.OPS},
    # It is wrong for ordinary values.
    aten.remainder.Tensor: (when.double_or_signed, _remainder),
    aten.remainder.Scalar: (when.double_or_signed, _remainder),
    aten.mm.default: (when.may_contract_empty, kernels.empty_product),
    aten.bmm.default: (when.may_contract_empty, kernels.empty_product),
    aten.arange.start_step: (when.rounds_steps, integers.steps),
    aten._log_softmax.default: (when.double_or_half_to_float, doubles.log_softmax),
    aten.native_layer_norm.default: (when.double, doubles.layer_norm),
    aten.native_group_norm.default: (when.double, doubles.group_norm),
    aten._adaptive_avg_pool2d.default: (when.double, pooling.adaptive_avg_pool),
    aten._native_batch_norm_legit.no_stats: (when.double, doubles.batch_norm),
    aten._upsample_bilinear2d_aa.default: (when.double_or_dynamic, sampling.antialiased),
    aten._upsample_bilinear2d_aa.vec: (when.double, doubles.no_formula),
    aten.upsample_bilinear2d.vec: (when.double_or_integers, sampling.bilinear),
    aten.max_pool2d_with_indices_backward.default: (when.always, kernels.max_pool2d_backward),
    aten._fft_r2c.default: (when.two_sided, doubles.no_formula),
}
# The kernel is wrong for NaN, infinities, zeros, integers that no float32 holds, or sums of many
# numbers of half precision, or it fails where a dynamic size is 0.
_RARELY_WRONG: _Faults = {
    aten.roll.default: (when.may_be_empty, kernels.roll),
    aten.index_select.default: (when.may_be_empty_along_dim, kernels.index_select),
    aten.argmax.default: (when.may_search_empty, _place_of_greatest),
    aten.argmin.default: (when.may_search_empty, _place_of_least),
    aten.cat.default: (when.may_join_empty, sizes.joined),
    aten.amax.default: (when.may_be_empty, _greatest),
    aten.amin.default: (when.may_be_empty, _least),
    aten._log_softmax.default: (when.may_be_empty_along_dim, kernels.log_softmax),
    aten.convolution.default: (when.half, halves.convolution),
    aten.addmm.default: (when.half_or_unweighted, weighting.addmm),
    aten.native_layer_norm.default: (when.half, halves.widened(aten.native_layer_norm.default)),
    aten.var.correction: (when.half_or_uncertain, _variance),
    aten.var.dim: (when.half, halves.widened(aten.var.dim)),
    aten.cumsum.default: (when.half, halves.widened(aten.cumsum.default)),
    aten.avg_pool2d.default: (when.half, halves.widened(aten.avg_pool2d.default)),
    aten.max_pool2d_with_indices.default: (when.floats, pooling.max_pool2d),
    aten.grid_sampler_2d.default: (when.interpolates_or_pads, sampling.grid_sampler_2d),
    aten.sign.default: (when.floats, kernels.sign),
    aten.div.Tensor_mode: (when.divides, _division),
    aten.floor.default: (when.integers, integers.whole),
    aten.ceil.default: (when.integers, integers.whole),
    aten.trunc.default: (when.integers, integers.whole),
    aten.fmod.Tensor: (when.integers, integers.fmod),
    aten.fmod.Scalar: (when.integers, integers.fmod),
    aten._cdist_forward.default: (when.cdist_of_p_0, kernels.distances),
    aten._pdist_forward.default: (when.pdist_of_p_0, kernels.distances_of_pairs),
    aten.sum.dim_IntList: (when.sum_rounds, integers.total),
    aten.pow.Tensor_Scalar: (when.integers_or_root, _power),
    aten.pow.Tensor_Tensor: (when.integers, integers.power),
    aten.pow.Scalar: (when.integers, integers.power),
    aten.bitwise_left_shift.Tensor: (when.integers, integers.left_shift),
    aten.bitwise_right_shift.Tensor: (when.integers, integers.right_shift),
    aten.bitwise_left_shift.Tensor_Scalar: (when.shifts_out, integers.shift_by_all),
    aten.bitwise_right_shift.Tensor_Scalar: (when.shifts_out, integers.shift_to_sign),
}
_TABLES: Mapping[str, _Faults] = {
    "no-kernel": _MISSING,
    "wrong": _WRONG,
    "rarely-wrong": _RARELY_WRONG,
}
