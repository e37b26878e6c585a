"""Faults: calls that the runtime has no portable kernel for, or whose kernel fails or is wrong.

Each has the formula that computes it instead, and the test of a node that says whether it is such a
call. What is wrong was seen by running every op on the edges of every dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from etdev.edge import misuses
from etdev.edge.formulas import (
    bags,
    doubles,
    halves,
    integers,
    kernels,
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
Faults = Mapping[Any, tuple[Callable[[Node], bool], _Formula]]


def _volume(x: torch.Tensor, *args: Any) -> torch.Tensor:
    formula = halves.convolution if x.dtype in halves.DTYPES else kernels.convolution
    result: torch.Tensor = formula(x, *args)
    return result


def _remainder(x: Any, y: Any) -> torch.Tensor:
    floating = torch.result_type(x, y).is_floating_point
    formula: _Formula = doubles.remainder if floating else integers.remainder
    result: torch.Tensor = formula(x, y)
    return result


def _sum(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    return (kernels.sum_of_one if x.dim() == 0 else doubles.total)(x, *args, **options)


def _division(x: Any, y: Any, *, rounding_mode: str) -> torch.Tensor:
    formula: _Formula = integers.truncated_division
    if rounding_mode == "floor":
        floating = torch.result_type(x, y).is_floating_point
        formula = kernels.floor_division if floating else integers.floor_division
    result: torch.Tensor = formula(x, y, rounding_mode=rounding_mode)
    return result


def _power(x: torch.Tensor, exponent: Any) -> torch.Tensor:
    formula: _Formula = kernels.root if exponent in (0.5, -0.5) else integers.power
    result: torch.Tensor = formula(x, exponent)
    return result


def _variance(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    half = x.dtype in halves.DTYPES
    formula = halves.widened(aten.var.correction) if half else reductions.variance
    result: torch.Tensor = formula(x, *args, **options)
    return result


def _greatest(x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    return reductions.extreme_by_dim(x, dim, keepdim, torch.max)


def _least(x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    return reductions.extreme_by_dim(x, dim, keepdim, torch.min)


_place_of_greatest = functools.partial(reductions.place_of_extreme, op=torch.argmax)
_place_of_least = functools.partial(reductions.place_of_extreme, op=torch.argmin)

# The runtime has no kernel.
MISSING: Faults = {
    aten.sort.default: (misuses.always, order.sort),
    aten.scatter_reduce.two: (misuses.always, reductions.scatter_reduce),
    aten.avg_pool3d.default: (misuses.always, pooling.avg_pool3d),
    aten.max_pool3d_with_indices.default: (misuses.always, pooling.max_pool3d),
    aten._adaptive_avg_pool3d.default: (misuses.always, pooling.adaptive_avg_pool),
    aten._embedding_bag.default: (misuses.first_is_read, bags.embedding_bag),
    aten.empty_strided.default: (misuses.always, kernels.empty_strided),
    aten.randperm.default: (misuses.always, randoms.randperm),
}
UNFIT: Faults = {
    # The kernel fails.
    aten.convolution.default: (misuses.volumes, _volume),
    aten._softmax.default: (misuses.widens, kernels.softmax),
    aten.constant_pad_nd.default: (misuses.crops, kernels.cropped),
    aten.cumsum.default: (misuses.single, kernels.cumsum_of_one),
    aten.masked_select.default: (misuses.selects_more, doubles.unknown),
    **{op: (misuses.promotes, kernels.of_number(op)) for op in (aten.add.Scalar, aten.sub.Scalar)},
    torch.ops.dim_order_ops._to_dim_order_copy.default: (misuses.makes_complex, kernels.to_complex),
    # It takes the process down.
    aten.amax.default: (misuses.has_nothing, reductions.extreme_of_nothing),
    aten.amin.default: (misuses.has_nothing, reductions.extreme_of_nothing),
    aten.roll.default: (misuses.has_nothing, kernels.roll),
    aten.sum.dim_IntList: (misuses.sum_fails, _sum),
    aten.unfold.default: (misuses.single, kernels.unfold_of_one),
    aten.unfold_copy.default: (misuses.single, kernels.unfold_of_one),
    aten.narrow.default: (misuses.backwards, kernels.narrow_copy),
    aten.narrow_copy.default: (misuses.backwards, kernels.narrow_copy),
    **{op: (misuses.scales_in_other_dtypes, quantisers.exact(op)) for op in quantisers.OPS},
    # It is wrong for ordinary values.
    aten.remainder.Tensor: (misuses.remains, _remainder),
    aten.remainder.Scalar: (misuses.remains, _remainder),
    aten.mm.default: (misuses.sums_nothing, kernels.empty_product),
    aten.bmm.default: (misuses.sums_nothing, kernels.empty_product),
    aten.arange.start_step: (misuses.rounds_steps, integers.steps),
    aten._log_softmax.default: (misuses.double_or_widens, doubles.log_softmax),
    aten.native_layer_norm.default: (misuses.double, doubles.layer_norm),
    aten.native_group_norm.default: (misuses.double, doubles.group_norm),
    aten._adaptive_avg_pool2d.default: (misuses.double, pooling.adaptive_avg_pool),
    aten._native_batch_norm_legit.no_stats: (misuses.double, doubles.batch_norm),
    aten._upsample_bilinear2d_aa.default: (misuses.double, doubles.unknown),
    aten._upsample_bilinear2d_aa.vec: (misuses.double, doubles.unknown),
    aten.upsample_bilinear2d.vec: (misuses.double_or_integers, sampling.bilinear),
    aten.max_pool2d_with_indices_backward.default: (misuses.always, kernels.max_pool2d_backward),
}
# The kernel is wrong for NaN, infinities, zeros, integers that are not floats, sums of many numbers
# of half precision, or fails where a dynamic size is nothing.
RARELY_UNFIT: Faults = {
    aten.roll.default: (misuses.may_have_nothing, kernels.roll),
    aten.index_select.default: (misuses.has_nothing_along, kernels.index_select),
    aten.argmax.default: (misuses.seeks_in_nothing, _place_of_greatest),
    aten.argmin.default: (misuses.seeks_in_nothing, _place_of_least),
    aten.cat.default: (misuses.joins_nothing, sizes.joined),
    aten.amax.default: (misuses.may_have_nothing, _greatest),
    aten.amin.default: (misuses.may_have_nothing, _least),
    aten._log_softmax.default: (misuses.has_nothing_along, kernels.log_softmax),
    aten.convolution.default: (misuses.half, halves.convolution),
    aten.addmm.default: (misuses.half_or_unweighted, weighting.addmm),
    aten.native_layer_norm.default: (misuses.half, halves.widened(aten.native_layer_norm.default)),
    aten.var.correction: (misuses.half_or_uncertain, _variance),
    aten.var.dim: (misuses.half, halves.widened(aten.var.dim)),
    aten.cumsum.default: (misuses.half, halves.widened(aten.cumsum.default)),
    aten.avg_pool2d.default: (misuses.half, halves.widened(aten.avg_pool2d.default)),
    aten.max_pool2d_with_indices.default: (misuses.floats, pooling.max_pool2d),
    aten.grid_sampler_2d.default: (misuses.samples_between, sampling.grid_sampler_2d),
    aten.sign.default: (misuses.floats, kernels.sign),
    aten.div.Tensor_mode: (misuses.divides, _division),
    aten.floor.default: (misuses.integers, integers.whole),
    aten.ceil.default: (misuses.integers, integers.whole),
    aten.trunc.default: (misuses.integers, integers.whole),
    aten.fmod.Tensor: (misuses.integers, integers.fmod),
    aten.fmod.Scalar: (misuses.integers, integers.fmod),
    aten._cdist_forward.default: (misuses.counts, kernels.distances),
    aten._pdist_forward.default: (misuses.counts_pairs, kernels.distances_of_pairs),
    aten.sum.dim_IntList: (misuses.sum_rounds, integers.total),
    aten.pow.Tensor_Scalar: (misuses.integers_or_root, _power),
    aten.pow.Tensor_Tensor: (misuses.integers, integers.power),
    aten.pow.Scalar: (misuses.integers, integers.power),
    aten.bitwise_left_shift.Tensor: (misuses.integers, integers.left_shift),
    aten.bitwise_right_shift.Tensor: (misuses.integers, integers.right_shift),
    aten.bitwise_left_shift.Tensor_Scalar: (misuses.shifts_out, integers.shift_by_all),
    aten.bitwise_right_shift.Tensor_Scalar: (misuses.shifts_out, integers.shift_to_sign),
}
