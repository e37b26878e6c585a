"""Strided transposed convolutions, written as plain ones whose outputs are put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.fx import Node

from etdev_cpu.layers import shape_of

# Channels that XNNPACK's layers compute together, on most processors.
_TILE = 16


def is_faster_as_plain(layer: Node) -> bool:
    """Return True for a strided transposed convolution that is faster as plain ones.

    With few outputs XNNPACK's transposed convolution takes up to 15 times as long; with many it is
    faster if there are fewer inputs than outputs. See benchmarks/deconvolution.py.
    """
    weight: Any = layer.args[1]
    given: Any = layer.args[3:]
    stride, _, dilation, transposed, _, groups = given
    inputs, outputs, *sizes = shape_of(weight)
    plain = transposed and groups == 1 and set(dilation) == {1} and weight.op == "placeholder"
    if not plain or max(stride) == 1 or len(sizes) > 2:
        return False
    pays = outputs < _TILE or inputs >= outputs
    return pays and all(size >= step for size, step in zip(sizes, stride, strict=True))


def as_plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], *options: Any
) -> Tensor:
    """Convolve once for each number of taps, and put the outputs of a stride side by side.

    Taps of zero would let all outputs have as many, but make NaN of infinities.
    """
    padding, dilation, transposed, more, groups = options
    if x.dim() == 3:
        # An image of one row.
        image, rows = x.view(x.shape[0], x.shape[1], 1, x.shape[2]), weight.unsqueeze(2)
        given = [0, *padding], dilation, transposed, [0, *more], groups
        y = as_plain(image, rows, bias, [1, *stride], *given)
        return y.view(y.shape[0], y.shape[1], y.shape[3])
    layout = zip(weight.shape[2:], stride, padding, more, x.shape[2:], strict=True)
    high, wide = (_Side(*given) for given in layout)
    convolved = {
        taps: _convolved(x, weight, bias, (high, wide), taps)
        for taps in product(high.taps, wide.taps)
    }
    parts = []
    for row in high.runs:
        found = [(convolved[row.taps, column.taps], column) for column in wide.runs]
        parts.append(_joined([wide.outputs(high.outputs(y, row, 1), c, 2) for y, c in found], 2))
    y = _joined(parts, 1).permute(0, 3, 4, 1, 5, 2)
    y = y.reshape(x.shape[0], weight.shape[1], y.shape[2] * high.step, y.shape[4] * wide.step)
    for dim, side in enumerate((high, wide), 2):
        y = y.narrow(dim, 0, side.length) if side.end % side.step else y
    return y


@frozen
class _Run:
    """Neighbouring outputs of a stride that have as many taps and start at the same input.

    Attributes:
        first: First tap of the first output; those of the next output are one further.
        count: Number of outputs.
        taps: Number of taps of each output, a stride apart.
        ahead: Place of the input of the first tap, from that of the block of outputs; the inputs of
            further taps come before it.
    """

    first: int
    count: int
    taps: int
    ahead: int


@frozen(eq=False)
class _Side:
    """The heights or the widths of a transposed convolution; its outputs are in blocks of a stride.

    Attributes:
        kernel, step, cut, more: Kernel size, stride, padding and output padding.
        size: Number of inputs, which may be dynamic.
    """

    kernel: int
    step: int
    cut: int
    more: int
    size: Any

    @property
    def end(self) -> int:
        """The number of outputs of the last input, with those after them."""
        return self.kernel - 2 * self.cut + self.more

    @property
    def length(self) -> Any:
        """The number of outputs."""
        return (self.size - 1) * self.step + self.end

    @property
    def added(self) -> int:
        """The number of blocks beyond that of inputs."""
        return -(-self.end // self.step) - 1

    @property
    def runs(self) -> list[_Run]:
        """The outputs of a block, in order."""
        runs: list[_Run] = []
        for place in range(self.cut, self.cut + self.step):
            ahead, first = divmod(place, self.step)
            taps = -((first - self.kernel) // self.step)
            if runs and (runs[-1].taps, runs[-1].ahead) == (taps, ahead):
                last = runs.pop()
                runs.append(_Run(last.first, last.count + 1, taps, ahead))
            else:
                runs.append(_Run(first, 1, taps, ahead))
        return runs

    @property
    def taps(self) -> list[int]:
        """Numbers of taps that an output may have."""
        return sorted({run.taps for run in self.runs})

    def first_taps(self, taps: int) -> range:
        """Return the first taps of all outputs with a number of taps."""
        longer = self.kernel % self.step
        longest = -(-self.kernel // self.step)
        return range(longer or self.step) if taps == longest else range(longer, self.step)

    def around(self, taps: int) -> int:
        """Return by how many zeros the inputs must be padded for outputs with a number of taps."""
        runs = [run for run in self.runs if run.taps == taps]
        ends = [end for run in runs for end in (taps - 1 - run.ahead, run.ahead + self.added)]
        return max(0, *ends)

    def outputs(self, y: Tensor, run: _Run, dim: int) -> Tensor:
        """Return a run's outputs of all with as many taps, along `dim`, whose blocks are behind."""
        if run.count < y.shape[dim]:
            y = y.narrow(dim, run.first - self.first_taps(run.taps)[0], run.count)
        around = self.around(run.taps)
        if 2 * around - run.taps + 1 == self.added:
            return y
        return y.narrow(dim + 3, around - run.taps + 1 + run.ahead, self.size + self.added)


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sides: tuple[_Side, _Side],
    taps: tuple[int, int],
) -> Tensor:
    """Return all outputs with these numbers of taps: rows, columns, channels, and their blocks."""
    rows, columns = (side.first_taps(tap) for side, tap in zip(sides, taps, strict=True))
    part = weight[:, :, rows[0] :, columns[0] :].unfold(2, len(rows), sides[0].step)
    # The last taps come first. Flipped, since views of weights are not computed ahead.
    part = part.unfold(3, len(columns), sides[1].step).flip([2, 3])
    part = part.permute(4, 5, 1, 0, 2, 3).reshape(-1, weight.shape[0], *taps)
    if bias is not None:
        bias = bias.repeat(len(rows) * len(columns))
    around = [side.around(tap) for side, tap in zip(sides, taps, strict=True)]
    plain = ([1, 1], around, [1, 1], False, [0, 0], 1)
    y: Tensor = torch.ops.aten.convolution.default(x, part, bias, *plain)
    return y.view(y.shape[0], len(rows), len(columns), weight.shape[1], *y.shape[2:])


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    return torch.cat([*parts], dim) if len(parts) > 1 else parts[0]
