"""Control: what the user decides about partitions himself, and whether the plans keep to it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from etdev.errors import EtdevWarning, PinError, PluginError, RegistryError
from etdev.registry import Registry
from etdev.schema.budget import Budget
from etdev.schema.ledger import listed
from etdev.schema.limits import Limits, limits
from etdev.schema.pins import PORTABLE, Pin, pins
from etdev.schema.plan import MethodPlan


@frozen
class Control:
    """Pins, limits and a budget.

    Args:
        pins: In the order in which they count.
        limits: By plugin.
        budget: None for no limit.
        strict: A pin that matches nothing or that its plugin doesn't keep is an error.
    """

    pins: tuple[Pin, ...] = ()
    limits: Mapping[str, Limits] = field(factory=dict)
    budget: Budget | None = None
    strict: bool = False

    def pins_of(self, method: str) -> tuple[Pin, ...]:
        """The pins for a method."""
        return tuple(pin for pin in self.pins if pin.method in (None, method))

    def limits_of(self, plugin: str) -> Limits:
        """The limits of a plugin."""
        return self.limits.get(plugin, Limits())

    def check_matched(self, matched: Collection[Pin]) -> None:
        """Warn of pins that matched nothing in any method.

        Raises:
            PinError: There is one, and this is strict.
        """
        for pin in dict.fromkeys(self.pins):
            if pin in matched:
                continue
            error = PinError(f"pin {pin}", "matches no node", "etdev plan --json lists them all")
            if self.strict:
                raise error
            warnings.warn(str(error), EtdevWarning, stacklevel=2)

    def check(self, plans: Sequence[MethodPlan]) -> None:
        """Compare the plans of a program's methods with pins and budget.

        Raises:
            PinError: A plugin has not taken what is pinned to it, and this is strict.
            BudgetError: More falls back to portable kernels than the budget allows.
        """
        missed = [(p.method, entry) for p in plans for entry in p.ledger if not entry.pin_kept]
        if missed and self.strict:
            names = dict.fromkeys(str(entry.pin) for _, entry in missed)
            raise PinError(
                f"pin {', '.join(names)}",
                f"is not kept for {listed(missed)}",
                "narrow it, or leave these to portable kernels without strict",
            )
        if self.budget:
            self.budget.check(plans)


def control(
    registry: Registry,
    plugins: Collection[str],
    *,
    given_pins: object = None,
    given_limits: object = None,
    given_budget: Any = None,
    strict: bool = False,
) -> Control:
    """What the user says, explicit before the registry.

    Args:
        registry: The registry.
        plugins: Names of the plugins that are asked.
        given_pins: Pins that precede the registry's.
        given_limits: Limits by plugin; the registry's hold where these say nothing.
        given_budget: A budget instead of the registry's.
        strict: As in Control.

    Raises:
        PluginError: Something can't be read, or names a plugin that is not asked.
        RegistryError: A pin of the registry names a plugin that is neither asked nor listed.
    """
    explicit = pins(given_pins)
    for pin in explicit:
        if pin.plugin not in (*plugins, PORTABLE):
            raise PinError(f"pin {pin}", f"{pin.plugin} is not asked", _there(plugins))
    for pin in registry.pins:
        _check_listed(pin, registry, plugins)
    table = {entry.name: entry.limits for entry in registry.entries}
    for name, own in limits(given_limits).items():
        if name not in plugins:
            raise PluginError(str(name), "has limits but is not asked", _there(plugins))
        table[name] = own.over(table.get(name, Limits()))
    budget = registry.budget if given_budget is None else Budget.of(given_budget)
    return Control((*explicit, *registry.pins), table, budget, strict)


def _check_listed(pin: Pin, registry: Registry, plugins: Collection[str]) -> None:
    if pin.plugin in (*plugins, PORTABLE):
        return
    if pin.plugin not in registry.names:
        known = ", ".join(dict.fromkeys((*plugins, *registry.names, PORTABLE)))
        raise RegistryError(
            str(registry.path or "registry"),
            f"pin {pin} names an unknown plugin",
            f"known are {known}",
        )
    what = f"pin {pin}: {pin.plugin} is not asked, so that its nodes are left to portable kernels"
    warnings.warn(f"{what}; install it or remove the pin", EtdevWarning, stacklevel=4)


def _there(plugins: Collection[str]) -> str:
    return f"the plugins are {', '.join(plugins) or 'none'}"
