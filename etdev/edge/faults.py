"""Faults: calls that the runtime has no portable kernel for, or whose kernel fails or is wrong.

Each has the formula that computes it instead, and the test of a node that says whether it is such a
call. What is wrong was seen by running every op on the edges of every dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from etdev.edge.formulas import (
    doubles,
    halves,
    integers,
    kernels,
    order,
    pooling,
    quantisers,
    randoms,
    reductions,
    weighting,
)

aten = torch.ops.aten
_Formula = Callable[..., Any]
Faults = Mapping[Any, tuple[Callable[[Node], bool], _Formula]]


def _always(node: Node) -> bool:
    return True


def _integers(node: Node) -> bool:
    dtype = _result(node).dtype
    return not dtype.is_floating_point and dtype != torch.bool


def _floats(node: Node) -> bool:
    return _input(node).dtype.is_floating_point


def _double(node: Node) -> bool:
    return _input(node).dtype == torch.float64


def _half(node: Node) -> bool:
    return _input(node).dtype in halves.DTYPES


def _single(node: Node) -> bool:
    return _input(node).dim() == 0


def _volumes(node: Node) -> bool:
    return len(node.args[3]) == 3 or _value(node.args[1]).dim() == 5  # type: ignore[arg-type]


def _volume(x: torch.Tensor, *args: Any) -> torch.Tensor:
    formula = halves.convolution if x.dtype in halves.DTYPES else kernels.convolution
    result: torch.Tensor = formula(x, *args)
    return result


def _widens(node: Node) -> bool:
    return _argument(node, 2, "half_to_float") is True


def _double_or_widens(node: Node) -> bool:
    return _double(node) or _widens(node)


def _backwards(node: Node) -> bool:
    dim = _argument(node, 1, "dim")
    return isinstance(dim, int) and dim < 0


def _remains(node: Node) -> bool:
    dtype = _result(node).dtype
    return dtype == torch.float64 or (_integers(node) and dtype.is_signed)


def _remainder(x: Any, y: Any) -> torch.Tensor:
    floating = torch.result_type(x, y).is_floating_point
    formula: _Formula = doubles.remainder if floating else integers.remainder
    result: torch.Tensor = formula(x, y)
    return result


def _sums_nothing(node: Node) -> bool:
    return _input(node).shape[1] == 0


def _rounds_steps(node: Node) -> bool:
    """Whether a range of integers has limits that are not, or that are no floats, or a bool."""
    numbers = node.args[:3]
    if any(isinstance(value, bool) for value in numbers):
        return True
    if not _integers(node) or not all(isinstance(value, (int, float)) for value in numbers):
        return False
    return any(float(value) != value or value != int(value) for value in numbers)  # type: ignore[arg-type]


def _sum_fails(node: Node) -> bool:
    if _single(node):
        return True
    return _result(node).dtype == torch.float64 and bool(_input(node).numel())


def _sum(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    return (kernels.sum_of_one if x.dim() == 0 else doubles.total)(x, *args, **options)


def _half_or_unweighted(node: Node) -> bool:
    """Whether a bias or a product doesn't count, not even where it is NaN; or it is of halves."""
    unweighted = 0 in (node.kwargs.get("beta"), node.kwargs.get("alpha"))
    return _half(node) or (_floats(node) and unweighted)


def _scales_in_other_dtypes(node: Node) -> bool:
    """Whether a quantiser is given scales or zero points that its kernel doesn't take."""
    given = zip(node.args[1:3], quantisers.DTYPES, strict=True)
    return any(isinstance(n, Node) and _value(n).dtype != dtype for n, dtype in given)


def _sum_rounds(node: Node) -> bool:
    """Whether a kernel adds integers in float32."""
    dims = _argument(node, 1, "dim")
    axes = len(dims) if dims else _input(node).dim()
    return axes == 1 and _integers(node) and _input(node).dtype == _result(node).dtype


def _divides(node: Node) -> bool:
    if node.kwargs.get("rounding_mode") == "trunc":
        return _result(node).dtype == torch.int64
    return node.kwargs.get("rounding_mode") == "floor" and not _integers(node)


def _division(x: Any, y: Any, *, rounding_mode: str) -> torch.Tensor:
    exact = rounding_mode == "trunc"
    formula = integers.truncated_division if exact else kernels.floor_division
    return formula(x, y, rounding_mode=rounding_mode)


def _integers_or_root(node: Node) -> bool:
    return _integers(node) or (_floats(node) and node.args[1] in (0.5, -0.5))


def _power(x: torch.Tensor, exponent: Any) -> torch.Tensor:
    formula: _Formula = kernels.root if exponent in (0.5, -0.5) else integers.power
    result: torch.Tensor = formula(x, exponent)
    return result


def _shifts_out(node: Node) -> bool:
    places = node.args[1]
    return not isinstance(places, int) or not 0 <= places < torch.iinfo(_input(node).dtype).bits


def _crops(node: Node) -> bool:
    pad: Any = node.args[1]
    return any(isinstance(size, int) and size < 0 for size in pad)


def _counts(node: Node) -> bool:
    norm = node.args[2]
    return isinstance(norm, (int, float)) and norm == 0


def _argument(node: Node, index: int, name: str) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _input(node: Node) -> torch.Tensor:
    return _value(node.all_input_nodes[0])


def _result(node: Node) -> torch.Tensor:
    return _value(node)


def _value(node: Any) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


# The runtime has no kernel.
MISSING: Faults = {
    aten.sort.default: (_always, order.sort),
    aten.scatter_reduce.two: (_always, reductions.scatter_reduce),
    aten.avg_pool3d.default: (_always, pooling.avg_pool3d),
    aten.max_pool3d_with_indices.default: (_always, pooling.max_pool3d),
    aten._adaptive_avg_pool3d.default: (_always, pooling.adaptive_avg_pool),
    aten.empty_strided.default: (_always, kernels.empty_strided),
    aten.randperm.default: (_always, randoms.randperm),
}
UNFIT: Faults = {
    # The kernel fails.
    aten.convolution.default: (_volumes, _volume),
    aten._softmax.default: (_widens, kernels.softmax),
    aten.constant_pad_nd.default: (_crops, kernels.cropped),
    aten.cumsum.default: (_single, kernels.cumsum_of_one),
    # It takes the process down.
    aten.sum.dim_IntList: (_sum_fails, _sum),
    aten.unfold.default: (_single, kernels.unfold_of_one),
    aten.unfold_copy.default: (_single, kernels.unfold_of_one),
    aten.narrow.default: (_backwards, kernels.narrow_copy),
    aten.narrow_copy.default: (_backwards, kernels.narrow_copy),
    **{op: (_scales_in_other_dtypes, quantisers.exact(op)) for op in quantisers.OPS},
    # It is wrong for ordinary values.
    aten.remainder.Tensor: (_remains, _remainder),
    aten.remainder.Scalar: (_remains, _remainder),
    aten.mm.default: (_sums_nothing, kernels.empty_product),
    aten.arange.start_step: (_rounds_steps, integers.steps),
    aten._log_softmax.default: (_double_or_widens, doubles.log_softmax),
    aten.native_layer_norm.default: (_double, doubles.layer_norm),
    aten.native_group_norm.default: (_double, doubles.group_norm),
    aten._adaptive_avg_pool2d.default: (_double, pooling.adaptive_avg_pool),
    aten.upsample_bilinear2d.vec: (_double, doubles.unknown),
    aten.max_pool2d_with_indices_backward.default: (_always, kernels.max_pool2d_backward),
}
# The kernel is wrong for NaN, infinities, zeros, integers that are not floats, or sums of many
# numbers of half precision.
RARELY_UNFIT: Faults = {
    aten.convolution.default: (_half, halves.convolution),
    aten.addmm.default: (_half_or_unweighted, weighting.addmm),
    aten.native_layer_norm.default: (_half, halves.widened(aten.native_layer_norm.default)),
    aten.var.correction: (_half, halves.widened(aten.var.correction)),
    aten.var.dim: (_half, halves.widened(aten.var.dim)),
    aten.cumsum.default: (_half, halves.widened(aten.cumsum.default)),
    aten.avg_pool2d.default: (_half, halves.widened(aten.avg_pool2d.default)),
    aten.max_pool2d_with_indices.default: (_floats, pooling.max_pool2d),
    aten.sign.default: (_floats, kernels.sign),
    aten.div.Tensor_mode: (_divides, _division),
    aten.floor.default: (_integers, integers.whole),
    aten.ceil.default: (_integers, integers.whole),
    aten.trunc.default: (_integers, integers.whole),
    aten.fmod.Tensor: (_integers, integers.fmod),
    aten.fmod.Scalar: (_integers, integers.fmod),
    aten._cdist_forward.default: (_counts, kernels.distances),
    aten.sum.dim_IntList: (_sum_rounds, integers.total),
    aten.pow.Tensor_Scalar: (_integers_or_root, _power),
    aten.pow.Tensor_Tensor: (_integers, integers.power),
    aten.pow.Scalar: (_integers, integers.power),
    aten.bitwise_left_shift.Tensor: (_integers, integers.left_shift),
    aten.bitwise_right_shift.Tensor: (_integers, integers.right_shift),
    aten.bitwise_left_shift.Tensor_Scalar: (_shifts_out, integers.shift_by_all),
    aten.bitwise_right_shift.Tensor_Scalar: (_shifts_out, integers.shift_to_sign),
}
