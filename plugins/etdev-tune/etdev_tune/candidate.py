"""Candidates, which are ways to lower a model, each a registry of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from attrs import evolve, field, frozen

from etdev import Pin, Registry
from etdev.schema.pins import PORTABLE
from etdev_tune.precision.recipe import PLUGIN

UNTUNED = "untuned"
# With more plugins, only pairs are tried, and each plugin first.
_FEW = 3


@frozen(eq=False)
class Candidate:
    """A claim order with options and pins.

    Args:
        name: Description: `untuned`, `cpu alone`, `openvino, cpu; openvino precision=f32`.
        plugins: Names in claim order.
        options: Options by plugin that differ from the user's registry.
        pins: Pins, after those of the user.
        always: The candidate is a baseline, which the winner must beat.
    """

    name: str
    plugins: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    pins: tuple[Pin, ...] = ()
    always: bool = False

    @property
    def key(self) -> str:
        """Text of all but the name; candidates of the same key are lowered once."""
        options = {name: dict(sorted(own.items())) for name, own in sorted(self.options.items())}
        pins = [str(pin) for pin in self.pins]
        return repr((self.plugins, options, pins))

    def registry(self, base: Registry) -> Registry:
        """Return the registry that lowers a model as this candidate, made of the user's."""
        # Pins to a plugin that is not asked leave nodes to portable kernels.
        owners = (*self.plugins, PORTABLE)
        pins = [
            pin if pin.plugin in owners else evolve(pin, plugin=PORTABLE)
            for pin in (*base.pins, *self.pins)
        ]
        trusted = base.trusted
        if trusted is not None and PLUGIN in self.plugins:
            trusted = tuple(dict.fromkeys([*trusted, "etdev-tune"]))
        return evolve(
            base,
            trusted=trusted,
            entries=tuple(self._entry(base, name) for name in self.plugins),
            unlisted="ignore",
            pins=tuple(pins),
            path=None,
        )

    def with_option(self, plugin: str, option: str, value: Any) -> Candidate:
        """Return a copy with another option of a plugin."""
        own = {**self.options.get(plugin, {}), option: value}
        text = ",".join(value) if isinstance(value, tuple) else value
        text = str(value).lower() if isinstance(value, bool) else text
        return self._changed(f"{plugin} {option}={text}", options={**self.options, plugin: own})

    def with_pins(self, pins: Sequence[Pin], owner: str, words: str) -> Candidate:
        """Return a copy with pins to an owner, which count before those of this candidate.

        A plugin that was not asked before is asked last.
        """
        plugins = dict.fromkeys([*self.plugins, *([owner] if owner != PORTABLE else [])])
        return self._changed(words, pins=(*pins, *self.pins), plugins=tuple(plugins))

    def _changed(self, words: str, **changes: Any) -> Candidate:
        return evolve(self, name=f"{self.name}; {words}", always=False, **changes)

    def _entry(self, base: Registry, name: str) -> Any:
        known = base.entry(name)
        return evolve(
            known, optional=False, options={**known.options, **self.options.get(name, {})}
        )


def baselines(names: Sequence[str]) -> list[Candidate]:
    """Return the untuned claim order, each of its plugins alone, and portable kernels alone."""
    alone = [Candidate(f"{name} alone", (name,), always=True) for name in names]
    portable = Candidate(f"{PORTABLE} alone", (), always=True)
    untuned = Candidate(UNTUNED, tuple(names), always=True)
    return [untuned, *(alone if len(names) > 1 else []), portable]


def orders_of(names: Sequence[str]) -> list[Candidate]:
    """Return claim orders of two plugins or more."""
    whole = tuple(names)
    if len(whole) <= _FEW:
        orders = [o for size in range(2, len(whole) + 1) for o in permutations(whole, size)]
    else:
        first = [(name, *(other for other in whole if other != name)) for name in whole]
        orders = [*permutations(whole, 2), *first]
    # The longest first, since they have the most to choose from.
    return [Candidate(", ".join(o), o) for o in sorted(orders, key=len, reverse=True)]
