"""Schemes of precision: torchao's configurations, casts, and the quantisers of plugins."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from attrs import field, frozen
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from etdev.app import Plugin, quantizers
from etdev.errors import EtdevError, TuneError
from etdev_tune.precision.layers import CONVOLUTION, EMBEDDING, LINEAR, Layer

AUTO = "auto"
# Elements of a row of 4-bit weights that share a scale.
_GROUP = 32


class Cast(nn.Module):
    """A layer that computes in another dtype, between float32 values."""

    def __init__(self, dtype: torch.dtype, layer: nn.Module) -> None:
        super().__init__()
        self.dtype, self.layer = dtype, copy.deepcopy(layer).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Cast the input, compute, and cast the output."""
        result: torch.Tensor = self.layer(x.to(self.dtype))
        return result.to(x.dtype)


@frozen(eq=False)
class Scheme:
    """A precision for layers of some kinds.

    Args:
        name: `bf16`, `8da4w`, or `cpu:int8` for a quantiser that a plugin names.
        bits: Bits of an element of a weight.
        kinds: The kinds of layers that it takes.
        made: Makes the module of a layer of the float one; None for a plugin's quantiser.
        quantizer: Makes the quantiser.
        group: The size of a row of a weight must be a multiple of it.
    """

    name: str
    bits: int
    kinds: tuple[str, ...]
    made: Callable[[nn.Module], nn.Module] | None = None
    quantizer: Callable[[], Any] | None = field(default=None, repr=False)
    group: int = 1

    @property
    def is_static(self) -> bool:
        """Return True if its scales come from calibration."""
        return self.quantizer is not None

    @property
    def plugin(self) -> str:
        """The plugin whose quantiser it is; empty for another scheme."""
        return self.name.partition(":")[0] if self.is_static else ""

    def problem(self, layer: Layer) -> str:
        """Return why it can't take a layer; empty if it can, as far as the layer tells."""
        if layer.kind not in self.kinds:
            return f"takes no {layer.kind}"
        if layer.shape[-1] % self.group:
            return f"needs rows of a multiple of {self.group}, but they have {layer.shape[-1]}"
        return ""


def _quantised(config: Any, layer: nn.Module) -> nn.Module:
    """Return a layer as torchao quantises it; the given one is not changed."""
    own = copy.copy(layer)
    # A shallow copy shares the dict of parameters.
    own._parameters = dict(layer._parameters)
    kind = nn.Embedding if isinstance(layer, nn.Embedding) else nn.Linear
    quantize_(own, config, filter_fn=lambda module, _: isinstance(module, kind))
    return own


def torchao_schemes() -> dict[str, Scheme]:
    """Return the casts and torchao's schemes that ExecuTorch's backends know, by name."""
    dynamic = Int8DynamicActivationIntxWeightConfig
    eight = dynamic(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
    four = dynamic(
        weight_dtype=torch.int4,  # type: ignore[attr-defined]
        weight_granularity=PerGroup(_GROUP),
        weight_scale_dtype=torch.bfloat16,  # as XNNPACK keeps them
    )
    weight = IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))
    both = (LINEAR, CONVOLUTION)
    schemes = (
        Scheme("8da8w", 8, (LINEAR,), partial(_quantised, eight)),
        Scheme("8da4w", 4, (LINEAR,), partial(_quantised, four), group=_GROUP),
        Scheme("bf16", 16, both, partial(Cast, torch.bfloat16)),
        Scheme("fp16", 16, both, partial(Cast, torch.float16)),
        Scheme("int8w", 8, (LINEAR, EMBEDDING), partial(_quantised, weight)),
    )
    return {scheme.name: scheme for scheme in schemes}


def plugin_schemes(plugins: Iterable[Plugin | str]) -> dict[str, Scheme]:
    """Return the schemes of the quantisers that plugins name by the hook `quantizers`."""
    kinds = (LINEAR, CONVOLUTION, EMBEDDING)
    return {n: Scheme(n, 8, kinds, quantizer=made) for n, made in quantizers(plugins).items()}


def schemes_for(names: Iterable[str]) -> dict[str, Scheme]:
    """Return the schemes of these names, and all of torchao's; loads the plugins that they name."""
    plugins = dict.fromkeys(name.partition(":")[0] for name in names if ":" in name)
    return {**plugin_schemes(plugins), **torchao_schemes()}


def schemes_of(precision: str | Sequence[str], plugins: Iterable[Plugin]) -> dict[str, Scheme]:
    """Return all schemes for `auto`, or those of these names."""
    known = {**plugin_schemes(plugins), **torchao_schemes()}
    if precision == AUTO:
        return known
    names = [precision] if isinstance(precision, str) else precision
    return {name: named(name, known) for name in names}


def named(name: str, schemes: Mapping[str, Scheme]) -> Scheme:
    """Return a scheme by its name, or raise a TuneError that lists all."""
    if name not in schemes:
        cure = f"it has {', '.join(schemes)}"
        raise TuneError("precision", f"there is no scheme {name!r}", cure)
    return schemes[name]


def check(scheme: Scheme, layer: Layer) -> None:
    """Refuse a layer that a scheme can't take, by name."""
    if problem := scheme.problem(layer):
        what = f"{scheme.name} {problem} ({layer.name})"
        raise TuneError("precision", what, "give that layer another scheme")


def made_quantizer(scheme: Scheme) -> Any:
    """Make the quantiser of a scheme; an error names its plugin."""
    assert scheme.quantizer
    try:
        return scheme.quantizer()
    except EtdevError:
        raise
    except Exception as error:
        what = f"its quantiser {scheme.name} can't be made: {error}"
        raise TuneError(scheme.plugin, what, "install what it needs") from error
