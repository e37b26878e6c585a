"""Candidates: ways to lower a model, each a registry of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from etdev.registry.registry import PluginEntry, Registry
from etdev.schema.limits import Limits
from etdev.schema.pins import PORTABLE as PORTABLE_OWNER
from etdev.schema.pins import Pin

UNTUNED = "untuned"
PORTABLE = "portable alone"


@frozen(eq=False)
class Candidate:
    """A claim order, with options, limits and pins beside those of the user.

    Args:
        name: What it is, in words: `untuned`, `cpu alone`, `openvino, cpu; openvino precision=f32`.
        plugins: Names in claim order.
        options: Options by plugin that differ from the user's registry.
        limits: Limits by plugin, likewise.
        pins: Pins, after those of the user.
        always: Whether it belongs to those that the winner may never lose against.
        simplify: Whether what computes nothing new is taken out first; None as the user says.
    """

    name: str
    plugins: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    limits: Mapping[str, Limits] = field(factory=dict)
    pins: tuple[Pin, ...] = ()
    always: bool = False
    simplify: bool | None = None

    @property
    def key(self) -> str:
        """What it does, its name aside: candidates of one key are lowered once."""
        options = {name: dict(sorted(own.items())) for name, own in sorted(self.options.items())}
        limits = {name: str(own) for name, own in sorted(self.limits.items())}
        pins = [str(pin) for pin in self.pins]
        return repr((self.plugins, options, limits, pins, self.simplify))

    def registry(self, base: Registry) -> Registry:
        """The registry that lowers as this candidate says.

        Args:
            base: The user's.
        """
        entries = tuple(self._entry(base.entry(name)) for name in self.plugins)
        # The nodes of a plugin that is not asked fall back, as without the plugin's entry.
        owners = (*self.plugins, PORTABLE_OWNER)
        pins = [
            pin if pin.plugin in owners else evolve(pin, plugin=PORTABLE_OWNER)
            for pin in (*base.pins, *self.pins)
        ]
        return evolve(
            base,
            entries=entries,
            unlisted="ignore",
            pins=tuple(pins),
            simplify=base.simplify if self.simplify is None else self.simplify,
            path=None,
            text="",
        )

    def with_option(self, plugin: str, option: str, value: Any) -> Candidate:
        """The same with another option of a plugin."""
        own = {**self.options.get(plugin, {}), option: value}
        text = ",".join(value) if isinstance(value, tuple) else value
        text = str(value).lower() if isinstance(value, bool) else text
        return self._changed(f"{plugin} {option}={text}", options={**self.options, plugin: own})

    def with_limits(self, plugin: str, limits: Limits, words: str) -> Candidate:
        """The same with other limits of a plugin."""
        own = limits.over(self.limits.get(plugin, Limits()))
        return self._changed(f"{plugin} {words}", limits={**self.limits, plugin: own})

    def with_pins(self, pins: Sequence[Pin], words: str) -> Candidate:
        """The same with pins that precede its others."""
        return self._changed(words, pins=(*pins, *self.pins))

    def simplified(self, simplify: bool) -> Candidate:
        """The same with or without the passes that take out what computes nothing new."""
        return self._changed(f"simplify={str(simplify).lower()}", simplify=simplify)

    def _changed(self, words: str, **changes: Any) -> Candidate:
        return evolve(self, name=f"{self.name}; {words}", always=False, **changes)

    def _entry(self, known: PluginEntry) -> PluginEntry:
        return evolve(
            known,
            optional=False,
            options={**known.options, **self.options.get(known.name, {})},
            limits=self.limits.get(known.name, Limits()).over(known.limits),
        )


def always(names: Sequence[str]) -> list[Candidate]:
    """The candidates that the winner may never lose against, portable kernels alone aside.

    Args:
        names: The plugins of the untuned plan, in claim order.
    """
    alone = [Candidate(f"{name} alone", (name,), always=True) for name in names]
    return [Candidate(UNTUNED, tuple(names), always=True), *(alone if len(names) > 1 else [])]


def portable() -> Candidate:
    """Portable kernels alone."""
    return Candidate(PORTABLE, (), always=True)


def untuned_without(names: Sequence[str], left_out: Sequence[str]) -> Candidate:
    """The untuned plan as far as it can be had here: without the plugins that can't compile."""
    return Candidate(f"{UNTUNED} without {', '.join(left_out)}", tuple(names), always=True)
