"""Calls with arguments for which Inductor calls ATen's kernel instead of generating code.

Inductor decides it inside of its lowerings, where nothing can be asked. Each rule says when, for a
GPU; tests hold the rules against Inductor itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._ops import OpOverload

Arguments = Mapping[str, Any]
Rule = Callable[[Arguments], bool]
# What its Triton templates of matrix products and convolutions compute.
_TEMPLATE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# What a GPU can't add atomically; bfloat16 can since compute capability 9.0, and a plan is made
# for any.
_NOT_ATOMIC = (torch.int64, torch.bool, torch.bfloat16)
# Functions that Inductor knows for CPUs only.
_FOR_CPUS = {data.name for data in pointwise_overrides_data.values() if data.triton is None}
_MASKS = (torch.bool, torch.uint8)
# More elements than that, and it would not unroll the loop over a pooling window.
_WINDOW = 25


def falls_back(op: OpOverload, arguments: Arguments, autotuned: bool) -> bool:
    """Return True if Inductor calls ATen's kernel although it has a lowering of the op.

    Args:
        op: An ATen op that Inductor has a lowering of.
        arguments: Its arguments by name, defaults included; tensors are fake.
        autotuned: Matrix products and convolutions become Triton kernels.
    """
    name = op._schema.name.removeprefix("aten::").removesuffix("_")
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return not autotuned or not all(map(_fits_template, _tensors(arguments)))
    if name == "convolution":
        return not autotuned or _convolution(arguments)
    rule = _RULES.get(name)
    return name in _FOR_CPUS or (rule is not None and rule(arguments))


def _tensors(arguments: Arguments) -> list[torch.Tensor]:
    return [value for value in arguments.values() if isinstance(value, torch.Tensor)]


def _fits_template(value: torch.Tensor) -> bool:
    return value.dtype in _TEMPLATE_DTYPES and value.numel() > 0


def _convolution(arguments: Arguments) -> bool:
    weight, groups = arguments["weight"], arguments["groups"]
    if arguments["transposed"] or any(arguments["output_padding"]):
        return True
    if any(size != 1 for size in arguments["dilation"]) or not _fits_template(weight):
        return True
    if weight.dim() == 5 and _is_product(weight, arguments):
        return True
    depthwise = groups > 1 and weight.shape[1] == 1 and weight.shape[0] == groups
    return weight.dim() == 3 and not depthwise


def _is_product(weight: torch.Tensor, arguments: Arguments) -> bool:
    """Return True if Inductor may compute it as a product with a template of its own."""
    ones = (*weight.shape[2:], *arguments["stride"])
    return set(ones) == {1} and not any(arguments["padding"]) and bool(arguments["groups"] == 1)


def _indexes_by_mask(arguments: Arguments) -> bool:
    return any(index is not None and index.dtype in _MASKS for index in arguments["indices"])


def _index_put(arguments: Arguments) -> bool:
    if _indexes_by_mask(arguments):
        # Otherwise it is a masked_fill.
        return bool(arguments["values"].numel() != 1) or len(arguments["indices"]) != 1
    return bool(arguments["accumulate"]) and arguments["self"].dtype in _NOT_ATOMIC


def _scatter(arguments: Arguments) -> bool:
    reduce, source = arguments.get("reduce"), arguments.get("src")
    if isinstance(source, torch.Tensor) and source.dtype in _NOT_ATOMIC:
        return True
    if reduce in (None, "add", "sum"):
        return reduce is not None and arguments["self"].dtype in _NOT_ATOMIC
    return True


def _scatter_add(arguments: Arguments) -> bool:
    return _scatter({**arguments, "reduce": "sum"})


def _average_pool(arguments: Arguments) -> bool:
    kernel = arguments["kernel_size"]
    stride = arguments["stride"] or kernel
    dims = max(len(kernel), len(stride))
    kernel, stride = _padded(kernel, dims), _padded(stride, dims)
    return math.prod(kernel) > _WINDOW and list(kernel) != list(stride)


def _adaptive_pool(arguments: Arguments) -> bool:
    sizes, wanted = arguments["self"].shape[-2:], arguments["output_size"]
    if any(size == 0 for size in wanted) or all(
        size % out == 0 for size, out in zip(sizes, wanted, strict=True)
    ):
        return False
    windows = [-(-(size + out - 1) // out) for size, out in zip(sizes, wanted, strict=True)]
    return bool(math.prod(windows) > _WINDOW)


def _padded(sizes: Sequence[int], dims: int) -> Sequence[int]:
    return list(sizes) * dims if len(sizes) == 1 else sizes


def _power(arguments: Arguments) -> bool:
    base, exponent = arguments["self"], arguments["exponent"]
    dtypes = {v.dtype for v in (base, exponent) if isinstance(v, torch.Tensor)}
    if any(dtype.is_floating_point for dtype in dtypes):
        return False
    if isinstance(exponent, torch.Tensor):
        return not isinstance(base, int) or base != 1
    return bool(exponent < 0)


def _always(_: Arguments) -> bool:
    return True


def _of_other_width(arguments: Arguments) -> bool:
    return bool(arguments["self"].dtype.itemsize != arguments["dtype"].itemsize)


_RULES: Mapping[str, Rule] = {
    # Sorted in full; Inductor's option to generate code for them is off.
    **dict.fromkeys(("median", "topk", "kthvalue", "mode"), _always),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _average_pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "adaptive_max_pool2d"), _adaptive_pool),
    **dict.fromkeys(("index", "_unsafe_index"), _indexes_by_mask),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("scatter", "scatter_reduce"), _scatter),
    "scatter_add": _scatter_add,
    "embedding": lambda arguments: bool(arguments["sparse"]),
    "pow": _power,
    "view": lambda arguments: "dtype" in arguments and _of_other_width(arguments),
}
