"""Recipes: a scheme by layer, with the scales of static quantisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

# The plugin that applies a recipe, which is its options.
PLUGIN = "precision"
# The precision of a layer without a scheme.
FLOAT = "float32"


@frozen
class Recipe:
    """A scheme by layer; a layer without one stays as it is.

    Args:
        layers: Name of a scheme by name of a layer.
        scales: Scale and zero point by method and value, of the static schemes.
    """

    layers: Mapping[str, str] = field(factory=dict)
    scales: Mapping[str, tuple[float, int]] = field(factory=dict)

    def to_options(self) -> dict[str, Any]:
        """Return the options of the plugin `precision`, as lists of lines."""
        lines = [f"{layer} = {scheme}" for layer, scheme in self.layers.items()]
        scales = [f"{key} = {scale!r} {zero}" for key, (scale, zero) in self.scales.items()]
        return {"layers": lines, **({"scales": scales} if scales else {})}

    @classmethod
    def of_options(cls, layers: Sequence[str], scales: Sequence[str]) -> Recipe:
        """Read the lines that `to_options` writes.

        Raises:
            ValueError: A line has another form.
        """
        read = {}
        for key, value in map(_pair, scales):
            scale, _, zero = value.partition(" ")
            read[key] = float(scale), int(zero)
        return cls(dict(map(_pair, layers)), read)


def _pair(line: str) -> tuple[str, str]:
    key, equals, value = line.rpartition(" = ")
    if not equals or not key or not value:
        raise ValueError(f"has {line!r}, write 'name = value'")
    return key, value
