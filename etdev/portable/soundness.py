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
    centring,
    doubles,
    elementwise,
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
from etdev.quirks import Fault

aten = torch.ops.aten
_Formula = Callable[..., Any]


@frozen(eq=False)
class Kernel(Fault):
    """A portable kernel that is missing, or that fails or is wrong under a condition.

    Args:
        applies: The condition on a node.
        formula: How the op is written in others; None for as ExecuTorch does.
        seen: What the repros in tests/support/quirks/kernels.py give the kernel, if its op has two
            rows; empty for all repros of the op.
    """

    applies: Callable[[Node], bool]
    formula: _Formula | None
    seen: str = ""
    upstream: str = field(default="", kw_only=True)


_Kernels = Mapping[Any, Kernel]


@frozen
class Problem:
    """A reason not to give a node to its portable kernel.

    Args:
        code: `no-kernel`, `wrong`, `rarely-wrong` or `slow`.
        text: The reason in words.
        formula: How the op is written in others.
        rare: The kernel is slow, or it is wrong for some values only, such as NaN.
    """

    code: str
    text: str
    formula: _Formula | None = field(default=None, eq=False)
    rare: bool = False

    def within(self, node: Node) -> Problem:
        """Return this problem, which a node in a branch has, for the op that has the branch."""
        if self.text.startswith("in a branch"):
            return self
        return evolve(self, text=f"in a branch, {op_name(node)} ({node.name}): {self.text}")


_TEXTS = {
    "no-kernel": "no portable kernel computes it",
    "wrong": "its portable kernel fails or is wrong for what it is given",
    "rarely-wrong": "its portable kernel is wrong for some values, such as NaN and large integers, "
    "or for empty tensors",
    "slow": "other ops compute the same faster, or are ones that backends take",
}


def problem_of(node: Node) -> Problem | None:
    """Return what is wrong with the kernel of a node; None if it is right."""
    # The ops of a library that may not be imported yet are in the tables by name.
    ops = (aten_op(node.target), op_name(node))
    for code, table in _JUDGED.items():
        for kernel in (table[op] for op in ops if op in table):
            if kernel.is_present and kernel.applies(node):
                return Problem(code, _TEXTS[code], kernel.formula, code in _RARE)
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
_layer_norm = _chosen(_is_half, halves.widened(centring.layer_norm), centring.layer_norm)
_sum = _chosen(lambda x, *_: x.dim() == 0, kernels.sum_of_one, doubles.total)
_power = _chosen(lambda _, exponent: exponent in (0.5, -0.5), kernels.root, integers.power)


def _division(x: Any, y: Any, *, rounding_mode: str) -> torch.Tensor:
    formula = _floor_division if rounding_mode == "floor" else integers.truncated_division
    return formula(x, y, rounding_mode=rounding_mode)


_greatest = functools.partial(reductions.extreme_by_dim, op=torch.max)
_least = functools.partial(reductions.extreme_by_dim, op=torch.min)
_place_of_greatest = functools.partial(reductions.place_of_extreme, op=torch.argmax)
_place_of_least = functools.partial(reductions.place_of_extreme, op=torch.argmin)

_missing = functools.partial(Kernel, when.always, upstream="pytorch/executorch#11320")

# The runtime has no kernel.
_MISSING: _Kernels = {
    aten.sort.default: _missing(order.sort),
    aten.scatter_reduce.two: _missing(reductions.scatter_reduce),
    aten.avg_pool3d.default: _missing(pooling.avg_pool3d),
    aten.max_pool3d_with_indices.default: _missing(pooling.max_pool3d),
    aten._adaptive_avg_pool3d.default: _missing(pooling.adaptive_avg_pool),
    aten._embedding_bag.default: Kernel(when.first_is_read, bags.embedding_bag),
    aten.empty_strided.default: _missing(kernels.empty_strided),
    "transformers.grouped_mm_fallback.default": Kernel(when.always, linalg.grouped_mm),
    aten.randperm.default: Kernel(when.always, randoms.randperm),
    **{
        op: Kernel(when.always, doubles.no_formula)
        for op in (
            *(aten._adaptive_avg_pool2d_backward.default, aten.avg_pool2d_backward.default),
            # ExecuTorch has no tensors of quantised dtypes.
            *(aten.quantize_per_tensor.default, aten.quantize_per_channel.default),
            *(aten.dequantize.self, aten.int_repr.default),
        )
    },
}
_WRONG: _Kernels = {
    # The kernel fails.
    aten.convolution.default: Kernel(
        when.convolves_3d, _volume, "volumes", upstream="pytorch/executorch#11704"
    ),
    aten._softmax.default: Kernel(when.half_to_float, kernels.softmax),
    aten.constant_pad_nd.default: Kernel(
        when.crops, kernels.cropped, upstream="pytorch/executorch#13554"
    ),
    aten.cumsum.default: Kernel(when.zero_dim, kernels.cumsum_of_one, "of_a_number"),
    **{
        op: Kernel(when.promotes, kernels.of_number(op))
        for op in (aten.add.Scalar, aten.sub.Scalar)
    },
    torch.ops.dim_order_ops._to_dim_order_copy.default: Kernel(
        when.makes_complex, kernels.to_complex
    ),
    aten._to_copy.default: Kernel(when.makes_complex, kernels.to_complex),
    # It takes the process down.
    aten.amax.default: Kernel(when.is_empty, reductions.extreme_of_empty, "of_nothing"),
    aten.amin.default: Kernel(when.is_empty, reductions.extreme_of_empty, "of_nothing"),
    aten.roll.default: Kernel(when.is_empty, kernels.roll),
    aten.sum.dim_IntList: Kernel(when.sum_fails, _sum, "of_a_number of_doubles"),
    aten.unfold.default: Kernel(when.zero_dim, kernels.unfold_of_one),
    aten.unfold_copy.default: Kernel(when.zero_dim, kernels.unfold_of_one),
    aten.narrow.default: Kernel(when.negative_dim, kernels.narrow_copy),
    aten.narrow_copy.default: Kernel(when.negative_dim, kernels.narrow_copy),
    **{op: Kernel(when.scales_in_other_dtypes, quantisers.exact(op)) for op in quantisers.OPS},
    # It is wrong for ordinary values.
    aten.remainder.Tensor: Kernel(when.double_or_signed, _remainder),
    aten.remainder.Scalar: Kernel(when.double_or_signed, _remainder),
    aten.linear.default: Kernel(when.optimised_fails, None),
    aten.mm.default: Kernel(when.may_contract_empty, kernels.empty_product),
    aten.bmm.default: Kernel(when.may_contract_empty, kernels.empty_product),
    aten.arange.start_step: Kernel(when.rounds_steps, integers.steps),
    aten._log_softmax.default: Kernel(
        when.double_or_half_to_float, doubles.log_softmax, "of_doubles"
    ),
    aten.native_layer_norm.default: Kernel(when.double, doubles.layer_norm, "of_doubles"),
    aten.native_group_norm.default: Kernel(when.double, doubles.group_norm, "of_doubles"),
    aten._adaptive_avg_pool2d.default: Kernel(when.double, pooling.adaptive_avg_pool),
    aten._native_batch_norm_legit.no_stats: Kernel(when.double, doubles.batch_norm, "of_doubles"),
    aten._upsample_bilinear2d_aa.default: Kernel(when.double_or_dynamic, sampling.antialiased),
    aten._upsample_bilinear2d_aa.vec: Kernel(when.double, doubles.no_formula),
    aten.upsample_bilinear2d.vec: Kernel(when.double_or_integers, sampling.bilinear),
    aten.max_pool2d_with_indices_backward.default: Kernel(when.always, kernels.max_pool2d_backward),
    aten._fft_r2c.default: Kernel(
        when.two_sided, doubles.no_formula, upstream="pytorch/executorch#21950"
    ),
}
# The kernel is wrong for NaN, infinities, zeros, integers that no float32 holds, sums of many
# numbers of half precision, or values whose mean is much larger than their deviation, or it fails
# where a dynamic size is 0.
_RARELY_WRONG: _Kernels = {
    aten.roll.default: Kernel(when.may_be_empty, kernels.roll),
    aten.index_select.default: Kernel(when.may_be_empty_along_dim, kernels.index_select),
    aten.argmax.default: Kernel(when.may_search_empty, _place_of_greatest),
    aten.argmin.default: Kernel(when.may_search_empty, _place_of_least),
    aten.cat.default: Kernel(when.may_join_empty, sizes.joined),
    aten.amax.default: Kernel(when.may_be_empty, _greatest, "of_no_rows"),
    aten.amin.default: Kernel(when.may_be_empty, _least, "of_no_rows"),
    aten._log_softmax.default: Kernel(
        when.may_be_empty_along_dim, kernels.log_softmax, "of_no_rows"
    ),
    aten.convolution.default: Kernel(when.half, halves.convolution, "of_halves"),
    aten.addmm.default: Kernel(when.half_or_unweighted, weighting.addmm),
    aten.native_layer_norm.default: Kernel(
        when.half_or_cancels, _layer_norm, "of_halves of_offsets"
    ),
    aten.native_group_norm.default: Kernel(when.cancels, centring.group_norm, "of_offsets"),
    aten._native_batch_norm_legit.no_stats: Kernel(when.cancels, centring.batch_norm, "of_offsets"),
    aten.var.correction: Kernel(when.half_or_uncertain, _variance),
    aten.var.dim: Kernel(when.half, halves.widened(aten.var.dim)),
    aten.cumsum.default: Kernel(when.half, halves.widened(aten.cumsum.default), "of_halves"),
    aten.avg_pool2d.default: Kernel(when.half, halves.widened(aten.avg_pool2d.default)),
    aten.max_pool2d_with_indices.default: Kernel(when.floats, pooling.max_pool2d),
    aten.grid_sampler_2d.default: Kernel(when.interpolates_or_pads, sampling.grid_sampler_2d),
    aten.sign.default: Kernel(when.floats, kernels.sign),
    aten.div.Tensor_mode: Kernel(when.divides, _division),
    aten.floor.default: Kernel(when.integers, integers.whole),
    aten.ceil.default: Kernel(when.integers, integers.whole),
    aten.trunc.default: Kernel(when.integers, integers.whole),
    aten.fmod.Tensor: Kernel(when.integers, integers.fmod),
    aten.fmod.Scalar: Kernel(when.integers, integers.fmod),
    aten._cdist_forward.default: Kernel(when.cdist_of_p_0, kernels.distances),
    aten._pdist_forward.default: Kernel(when.pdist_of_p_0, kernels.distances_of_pairs),
    aten.sum.dim_IntList: Kernel(when.sum_rounds, integers.total, "of_integers"),
    aten.pow.Tensor_Scalar: Kernel(when.integers_or_root, _power),
    aten.pow.Tensor_Tensor: Kernel(when.integers, integers.power),
    aten.pow.Scalar: Kernel(when.integers, integers.power),
    aten.bitwise_left_shift.Tensor: Kernel(when.integers, integers.left_shift),
    aten.bitwise_right_shift.Tensor: Kernel(when.integers, integers.right_shift),
    aten.bitwise_left_shift.Tensor_Scalar: Kernel(when.shifts_out, integers.shift_by_all),
    aten.bitwise_right_shift.Tensor_Scalar: Kernel(when.shifts_out, integers.shift_to_sign),
}
TABLES: Mapping[str, _Kernels] = {
    "no-kernel": _MISSING,
    "wrong": _WRONG,
    "rarely-wrong": _RARELY_WRONG,
}
# The kernel is right, but other ops compute the same faster, or are ones that backends take.
_SLOW: _Kernels = {
    aten.gelu.default: Kernel(when.tanh_of_floats, elementwise.tanh_gelu),
    aten.mean.dim: Kernel(when.means_rows, reductions.mean_of_rows),
}
_JUDGED: Mapping[str, _Kernels] = {**TABLES, "slow": _SLOW}
_RARE = ("rarely-wrong", "slow")
