"""Options of the plugin, which its rules read."""

from __future__ import annotations

from attrs import field, frozen, validators

EDGES = ("ignored", "exact")
PRECISIONS = ("fp32", "static_quant", "dynamic_quant")


@frozen
class Options:
    """Options of XNNPACK delegates.

    Args:
        precisions: Any of `fp32`, `static_quant`, `dynamic_quant`, as XnnpackPartitioner's
            `config_precisions`; empty means all of them.
        per_op: A delegate per op and its dependencies, instead of the largest possible delegates.
        bf16: Also take bfloat16 linear layers.
        approximate: Also take ops that XNNPACK approximates: tanh GELU is off by up to 5e-4.
        nan: `exact` refuses ops for which XNNPACK's result differs from PyTorch's at NaN or
            infinite values; `ignored` takes them.
    """

    precisions: tuple[str, ...] = field(
        default=(), converter=tuple, validator=validators.deep_iterable(validators.in_(PRECISIONS))
    )
    per_op: bool = False
    bf16: bool = False
    approximate: bool = False
    nan: str = field(default="ignored", validator=validators.in_(EDGES))

    @property
    def takes_float32(self) -> bool:
        """True if XNNPACK takes float32."""
        return not self.precisions or "fp32" in self.precisions

    @property
    def ignores_nan(self) -> bool:
        """True if XNNPACK takes float32, and may differ at NaN and infinite values."""
        return self.nan == "ignored" and self.takes_float32
