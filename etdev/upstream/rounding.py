"""Differences of kernels: rounding of sums, functions and quantisers, and NaN for numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, field

from etdev.upstream.modes import OpMode
from etdev.upstream.operators import OpOverload, arguments_of, base_name
from etdev.upstream.trees import pytree

# All kernels agree about +, -, *, / and comparisons. They differ in sums, whose errors have the
# size of the largest one, and in functions, whose errors have the size of each value.
_SUMS = {
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "mkldnn_rnn_layer"),
    *("sum", "mean", "var", "cumsum", "native_layer_norm", "native_group_norm", "_cdist_forward"),
    *("_scaled_dot_product_flash_attention_for_cpu", "upsample_bilinear2d", "grid_sampler_2d"),
}
_FUNCTIONS = {
    *("sin", "cos", "tan", "atan", "atan2", "exp", "exp2", "expm1", "log", "log1p", "log2", "pow"),
    *("sigmoid", "tanh", "erf", "gelu", "silu", "mish", "softplus", "elu", "rsqrt", "_softmax"),
    *("_log_softmax", "hardswish", "hardsigmoid"),
}
# Integer kernels round numbers that are nearer than this part of a step to a tie either way. Where
# PyTorch computes the step of a whole tensor, kernels have one for each row, so all may be rounded
# either way.
_NEAR, _ANY = 0.05, 0.5
# A factor that makes the phases of neighbours in float32 independent.
_PHASE = 1e9


@define(eq=False, slots=False)
class RandomRounding(OpMode):
    """A mode in which ops round at random, as far as kernels differ in rounding.

    Args:
        generator: Generator of random numbers.
        units: How far sums and functions are off, in units in the last place.
        by_steps: Quantisers are up to a step off, not near ties alone.
    """

    generator: torch.Generator
    units: int
    by_steps: bool = False

    def call(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an op with values or results that are off."""
        name = base_name(op)
        if name.startswith("quantize"):
            return op(**self._between(arguments_of(op, args, kwargs)))
        made = op(*args, **kwargs)
        if not self.units or name not in _SUMS | _FUNCTIONS:
            return made
        first, *rest = made if isinstance(made, tuple) else (made,)
        first = self._off(first, name in _SUMS)
        return (first, *rest) if isinstance(made, tuple) else first

    def _between(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of a quantiser with values that are a part of a step off."""
        steps: Any = named.get("scale", named.get("scales"))
        value = named["input"]
        static = "axis" in named or not isinstance(steps, torch.Tensor)
        part = 1.0 if self.by_steps else _NEAR if static else _ANY
        if "axis" in named:
            steps = steps.reshape([-1, *[1] * (value.dim() - named["axis"] - 1)])
        off = 2 * torch.rand(value.shape, generator=self.generator) - 1
        return {**named, "input": value + (off * steps * part).to(value)}

    def _off(self, value: torch.Tensor, by_largest: bool) -> torch.Tensor:
        """Return values that are off; equal ones stay equal, as other kernels leave them."""
        if not value.is_floating_point() or not value.numel():
            return value
        factor, phase = torch.rand(2, generator=self.generator, dtype=torch.float64) + 1
        signs = (value.double() * factor * _PHASE + phase * _PHASE).cos().sign()
        size = value.abs().max() if by_largest else value.abs()
        error: torch.Tensor = signs * size * self.units * torch.finfo(value.dtype).eps
        return value + error.nan_to_num(0.0, 0.0, 0.0).to(value)


@define(eq=False, slots=False)
class NanFinder(OpMode):
    """A mode that notes whether an op returns NaN for numbers, as 0 / 0 does."""

    found: bool = field(default=False, init=False)

    def call(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an op, and look at its result; that of `empty` is what memory had."""
        made = op(*args, **kwargs)
        if not self.found and "empty" not in base_name(op):
            self.found = _has_nan(made) and not _has_nan((args, kwargs))
        return made


def _has_nan(values: Any) -> bool:
    tensors = [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]
    return any(bool(value.isnan().any()) for value in tensors)
