"""Formulas of pools, one dimension after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed

aten = torch.ops.aten


def avg_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average one dimension after the other, since a window's sum is a sum of sums."""
    kernel = _three(kernel_size)
    steps, around = _three(stride or kernel), _three(padding)
    total: Tensor = x
    count: Any = 1
    for axis in range(3):
        dim = x.dim() - 3 + axis
        size = fixed(x.shape[dim])
        pad, width, step = around[axis], kernel[axis], steps[axis]
        number = _windows(size, width, step, pad, 1, ceil_mode)
        first, *others = _slices(total, 0.0, dim, number, width, step, 1, pad)
        total = functools.reduce(torch.add, others, first)
        starts = torch.arange(number, device=x.device) * step - pad
        ends = torch.clamp(starts + width, max=size + pad if count_include_pad else size)
        counts = ends - (starts if count_include_pad else torch.clamp(starts, min=0))
        shape = [number if a == dim else 1 for a in range(x.dim())]
        count = count * counts.reshape(shape).to(x.dtype)
    whole = None if x.dtype.is_floating_point else "trunc"
    return torch.div(total, divisor_override or count, rounding_mode=whole)


def max_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return values and places, one dimension after the other; the last NaN of a window wins.

    Values don't come with the places, which take longer and are rarely read.
    """
    kernel, apart = _three(kernel_size), _three(dilation)
    steps, around = _three(stride or kernel), _three(padding)
    first = x.dim() - 3
    sizes = [fixed(size) for size in x.shape[first:]]
    lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    places = torch.arange(math.prod(sizes), device=x.device).reshape(sizes).expand(x.shape)
    each = list(zip(sizes, kernel, steps, around, apart, strict=True))
    windows = [
        (first + axis, _windows(*own, ceil_mode), own[1], own[2], own[4], own[3])
        for axis, own in enumerate(each)
    ]
    values = x
    for window in windows:
        values = functools.reduce(torch.maximum, _slices(values, lowest, *window))
    for window in reversed(windows):
        inside = zip(_slices(x, lowest, *window), _slices(places, -1, *window), strict=True)
        x, places = _first_best(inside)
    return values, places


def max_pool2d(
    x: Tensor, kernel_size: Sequence[int], *options: Any, **named: Any
) -> tuple[Tensor, Tensor]:
    """Return the last NaN of a window, where the kernel returns the largest number."""
    arguments = (kernel_size, *options)
    values, places = aten.max_pool2d_with_indices.default(x, *arguments, **named)
    height, width = x.shape[-2:]
    numbers = torch.arange(1, height * width + 1, device=x.device).reshape(height, width)
    marks = torch.where(torch.isnan(x), numbers, 0)
    last, _ = aten.max_pool2d_with_indices.default(marks, *arguments, **named)
    has_nan = last > 0
    return torch.where(has_nan, math.nan, values), torch.where(has_nan, last - 1, places)


def _first_best(candidates: Iterator[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the first of the largest values, or the last NaN, and its place; -1 is outside."""
    value, place = next(candidates)
    for other, where in candidates:
        wins = (other > value) | (place < 0)
        if value.dtype.is_floating_point:
            wins = wins | torch.isnan(other)
        wins = wins & (where >= 0)
        value, place = torch.where(wins, other, value), torch.where(wins, where, place)
    return value, place


def _slices(
    x: Tensor, outside: float, dim: int, number: int, width: int, step: int, apart: int, pad: int
) -> Iterator[Tensor]:
    """For each place in a window, what all windows have there."""
    size = x.shape[dim]
    need = (number - 1) * step + (width - 1) * apart + 1
    after = max(0, need - size - pad)
    if pad or after:
        amounts = [0, 0] * (x.dim() - 1 - dim) + [pad, after]
        x = torch.constant_pad_nd(x, amounts, outside)
    for place in range(width):
        begin = place * apart
        yield x.narrow(dim, begin, (number - 1) * step + 1)[
            tuple(slice(None, None, step if axis == dim else 1) for axis in range(x.dim()))
        ]


def _windows(size: int, width: int, step: int, pad: int, apart: int, ceil_mode: bool) -> int:
    """Return the number of windows, without one that begins in the padding after the end."""
    room = size + 2 * pad - apart * (width - 1) - 1
    number = (-(-room // step) if ceil_mode else room // step) + 1
    return number - 1 if ceil_mode and (number - 1) * step >= size + pad else number


def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average one dimension after the other, since a window's mean is a mean of means."""
    for axis, number in enumerate(output_size):
        dim = x.dim() - len(output_size) + axis
        size = fixed(x.shape[dim])
        ends = [(i * size // number, -(-(i + 1) * size // number)) for i in range(fixed(number))]
        means = [x.narrow(dim, a, b - a).mean(dim, keepdim=True) for a, b in ends]
        x = torch.cat(means, dim)
    return x


def _adaptive_max_pool(rank: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        first = x.dim() - rank
        sizes = x.shape[first:]
        places = torch.arange(math.prod(sizes), device=x.device).reshape(sizes).expand(x.shape)
        for axis in reversed(range(rank)):
            size, number, dim = sizes[axis], fixed(output_size[axis]), first + axis
            if number == 1 or fixed(size) % number == 0:
                x, places = _best_of_blocks(x, places, dim, number)
                continue
            index = torch.arange(number, device=x.device)
            begins = torch.div(index * size, number, rounding_mode="floor")
            lasts = torch.div((index + 1) * size - 1, number, rounding_mode="floor")
            width = max(-(-(i + 1) * size // number) - i * size // number for i in range(number))
            # The last value of a short window counts again, which changes nothing.
            steps = [torch.minimum(begins + step, lasts) for step in range(width)]
            values = [torch.index_select(x, dim, step) for step in steps]
            x, places = _first_best(
                zip(values, (torch.index_select(places, dim, step) for step in steps), strict=True)
            )
        return x, places

    return pool


def _best_of_blocks(x: Tensor, places: Tensor, dim: int, number: int) -> tuple[Tensor, Tensor]:
    """Return the first of the largest values, or the last NaN, of equal blocks, and its place."""
    blocks, where = (torch.unflatten(value, dim, (number, -1)) for value in (x, places))
    values, best = blocks.max(dim + 1, keepdim=True)
    if x.dtype.is_floating_point:
        index = torch.arange(blocks.shape[dim + 1], device=x.device)
        index = index.reshape(-1, *[1] * (x.dim() - dim - 1))
        last = torch.where(torch.isnan(blocks), index, -1).amax(dim + 1, keepdim=True)
        best = torch.where(last >= 0, last, best)
    return values.squeeze(dim + 1), where.gather(dim + 1, best).squeeze(dim + 1)


def _three(values: Sequence[int]) -> list[int]:
    return [fixed(value) for value in values] if len(values) > 1 else [fixed(values[0])] * 3


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.adaptive_max_pool2d.default: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: _adaptive_max_pool(3),
}
