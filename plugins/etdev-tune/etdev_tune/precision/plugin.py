"""The plugin `precision`, which computes the layers of a program as a recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

from etdev import TuneError, hookimpl
from etdev_tune.precision.recipe import Recipe

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@frozen
class Precision:
    """A scheme by layer, with the scales of static ones, as `Recipe.to_options` writes them.

    Args:
        layers: Lines such as `encoder.0 = 8da4w`: layer and scheme.
        scales: Lines such as `forward conv2d/int8 = 0.0125 -3`: method, value, scale and zero
            point.
    """

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1
    # A .pte is verified against the program that it returns.
    approximates: ClassVar[bool] = True
    layers: tuple[str, ...] = field(default=(), converter=tuple)
    scales: tuple[str, ...] = field(default=(), converter=tuple)
    # Names of the layers of each method that was prepared.
    _layers: dict[str, set[str]] = field(init=False, factory=dict, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.recipe  # noqa: B018 - refuses lines of another form

    @property
    def idle(self) -> bool:
        """True without a recipe, so that no plan, list or tuning has the plugin."""
        return not self.layers

    @property
    def recipe(self) -> Recipe:
        """The recipe that its options are."""
        return Recipe.of_options(self.layers, self.scales)

    @hookimpl
    def prepare(self, program: ExportedProgram, method: str) -> ExportedProgram | None:
        """Quantise the layers of a method, without data."""
        if not self.layers:
            return None
        from etdev_tune.precision.application import apply, unlifted
        from etdev_tune.precision.layers import layers_of
        from etdev_tune.precision.schemes import schemes_for

        own = self._layers[method] = set(layers_of(unlifted(program)))
        if own.isdisjoint(self.recipe.layers):
            return None
        return apply(self.recipe, program, method, schemes_for(self.recipe.layers.values()))

    @hookimpl
    def claim_nodes(self) -> None:
        """Claim nothing, and refuse a layer that no method has, now that all are prepared."""
        missing = set(self.recipe.layers).difference(*self._layers.values())
        if self._layers and missing:
            what = f"no method has the recipe's layer {min(missing)!r}"
            raise TuneError("precision", what, "it was made for another model; tune it again")
