"""The rules that the user gives for partitions, and checks of plans against them.

Arguments of `Lowerer` precede the registry, everywhere; without either, the plugin derives a value,
else the default holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from attrs import Attribute, field, frozen

from etdev.errors import (
    BudgetError,
    DeviceError,
    EtdevError,
    LoweringError,
    PinError,
    PluginError,
    RegistryError,
    shown,
    warn_or_raise,
)
from etdev.registry.registry import Registry
from etdev.schema.device import ANY_METHOD, Device, for_method, per_method
from etdev.schema.ledger import Entry, together
from etdev.schema.limits import Budget, Limits, budget, limits
from etdev.schema.partition import Draft
from etdev.schema.pins import Pin, pins
from etdev.schema.plan import MethodPlan
from etdev.schema.wording import listed

Devices = Mapping[str, Mapping[str, Device]]
# More nodes than these are counted instead of named.
_NAMED = 5


@frozen
class Rules:
    """Devices, pins, limits and a budget."""

    # By plugin and method: given explicitly, and by the registry.
    devices: Devices = field(factory=dict)
    registry_devices: Devices = field(factory=dict)
    # In the order in which they count, the explicit ones first.
    pins: tuple[Pin, ...] = ()
    limits: Mapping[str, Limits] = field(factory=dict)
    budget: Budget | None = None
    strict: bool = False

    def device_of(self, draft: Draft) -> Device | None:
        """Return the device that a partition is pinned to, or None."""
        for devices in (self.devices, self.registry_devices):
            if device := for_method(devices.get(draft.plugin, {}), draft.method):
                return device
        return None

    def limits_of(self, plugin: str) -> Limits:
        """Return the limits of a plugin."""
        return self.limits.get(plugin, Limits())

    def check_methods(self, methods: Collection[str]) -> None:
        """Refuse an explicit device for a method that the program does not have.

        Warn of plugins that are asked about none of its methods. The registry is for many programs
        and may name more methods.
        """
        for plugin, devices in self.devices.items():
            for method in devices:
                if method != ANY_METHOD and method not in methods:
                    what = f"is pinned in the unknown method {method!r}"
                    raise PluginError(plugin, what, "name one of the program's")
        for plugin, own in self.limits.items():
            if own.methods and not set(own.methods) & set(methods):
                what = f"is asked about {', '.join(own.methods)} only, which the program lacks"
                warn_or_raise(PluginError(plugin, what, f"it has {', '.join(methods)}"), False)

    def check_matched(self, matched: Collection[Pin]) -> None:
        """Warn of pins that matched nothing in any method; refuse them under `strict`."""
        for pin in dict.fromkeys(self.pins):
            if pin not in matched:
                cure = "etdev plan --json lists them all"
                warn_or_raise(PinError(f"pin {pin}", "matches no node", cure), self.strict)

    def check(self, plans: Sequence[MethodPlan]) -> None:
        """Refuse plans that exceed the budget or, under `strict`, don't keep a pin."""
        missed = _matching(plans, lambda entry: not entry.pin_kept)
        if missed and self.strict:
            names = dict.fromkeys(str(entry.pin) for _, entry in missed)
            what = f"is not kept for {_listed(missed)}"
            cure = "narrow it, or lower without strict, which leaves these to portable kernels"
            raise PinError(f"pin {', '.join(names)}", what, cure)
        if self.budget:
            _check_budget(self.budget, plans)


def _check_budget(budget: Budget, plans: Sequence[MethodPlan]) -> None:
    """Refuse plans with more nodes on portable kernels than the budget allows."""
    allowed = budget.fallback_ops
    over = _matching(
        plans, lambda e: e.falls_back and not any(fnmatchcase(e.op, op) for op in allowed)
    )
    if len(over) > budget.fallback_limit:
        free = f" besides {', '.join(allowed)}" if allowed else ""
        raise BudgetError(
            "budget",
            f"{budget.fallback_limit} nodes may be left to portable kernels{free}, "
            f"not {len(over)}: {_listed(over)}",
            "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin",
        )


def check_claimed(who: str, plans: Iterable[MethodPlan], cure: str) -> None:
    """Refuse by name the nodes that have no owner, with what every plugin said about them."""
    if refused := _matching(plans, lambda entry: entry.owner is None and not entry.foreign):
        raise LoweringError(who, f"no plugin takes {_listed(refused)}", cure)


def _matching(
    plans: Iterable[MethodPlan], wanted: Callable[[Entry], bool]
) -> list[tuple[str, Entry]]:
    """Return the entries that satisfy a predicate, with their methods."""
    return [(plan.method, entry) for plan in plans for entry in plan.ledger if wanted(entry)]


def _listed(nodes: Sequence[tuple[str, Entry]]) -> str:
    """Return the first few nodes and a count of the rest, for the middle of a message."""
    texts = []
    for method, entry in nodes:
        place = f" at {entry.line or entry.module}" if entry.line or entry.module else ""
        texts.append(f"{entry.op}{place} ({method}/{entry.node}; {together(entry.reasons)})")
    return listed(texts, _NAMED)


def _check_switch(_: object, attribute: Attribute[Any], value: object) -> None:
    if value not in (True, False, None):
        raise EtdevError(attribute.name, f"is {shown(value)}", "give True, False, or None")


@frozen(eq=False)
class Options:
    """The arguments that `Lowerer`, `etdev.partitioner` and `etdev.tune` share; None if not given.

    `Lowerer` documents them.
    """

    registry: Registry | str | os.PathLike[str] | None = None
    devices: Mapping[str, Any] | None = None
    pins: Sequence[Pin | Mapping[str, Any]] | None = None
    limits: Mapping[str, Limits | Mapping[str, Any]] | None = None
    budget: Budget | Mapping[str, Any] | None = None
    strict: bool | None = field(default=None, validator=_check_switch)
    simplify: bool | None = field(default=None, validator=_check_switch)
    share_state: bool | None = field(default=None, validator=_check_switch)


def rules(registry: Registry, plugins: Collection[str], options: Options) -> Rules:
    """Return the rules of a registry, with explicit options before them.

    Refuse options that can't be read, or that name a plugin that is not asked.
    """
    for pin in registry.pins:
        _check_listed(pin, registry, plugins)
    return Rules(
        devices=_devices(options.devices, plugins),
        registry_devices={entry.name: entry.devices for entry in registry.entries},
        pins=(*_pins(options.pins, plugins), *registry.pins),
        limits=_limits(options.limits, registry, plugins),
        budget=registry.budget if options.budget is None else budget(options.budget),
        strict=registry.strict if options.strict is None else options.strict,
    )


def _devices(given: Mapping[str, Any] | None, plugins: Collection[str]) -> Devices:
    if not isinstance(given, (Mapping, type(None))):
        cure = 'write {"cuda": "cuda:1"}'
        raise DeviceError("devices", f"{shown(given)} is not a mapping", cure)
    devices = {}
    for plugin, value in (given or {}).items():
        try:
            devices[plugin] = per_method(value)
        except DeviceError as error:
            raise DeviceError(f"devices[{plugin!r}]", error.what, error.cure) from None
        if plugin not in plugins:
            what = "is pinned to a device but not asked"
            raise PluginError(str(plugin), what, _asked(plugins))
    return devices


def _pins(given: object, plugins: Collection[str]) -> tuple[Pin, ...]:
    explicit = pins(given)
    for pin in explicit:
        if pin.plugin not in plugins:
            raise PinError(f"pin {pin}", f"{pin.plugin} is not asked", _asked(plugins))
    return explicit


def _limits(given: object, registry: Registry, plugins: Collection[str]) -> dict[str, Limits]:
    table = {entry.name: entry.limits for entry in registry.entries}
    for name, own in limits(given).items():
        if name not in plugins:
            raise PluginError(str(name), "has limits but is not asked", _asked(plugins))
        table[name] = own.over(table.get(name, Limits()))
    return table


def _check_listed(pin: Pin, registry: Registry, plugins: Collection[str]) -> None:
    if pin.plugin in plugins:
        return
    if pin.plugin not in registry.names:
        known = ", ".join(dict.fromkeys((*plugins, *registry.names)))
        what, who = f"pin {pin} names an unknown plugin", str(registry.path or "registry")
        raise RegistryError(who, what, f"known are {known}")
    what = f"plugin {pin.plugin} is not in use, so its nodes fall back to portable kernels"
    cure = f"install {pin.plugin} or remove the pin"
    warn_or_raise(PinError(f"pin {pin}", what, cure), False)


def _asked(plugins: Collection[str]) -> str:
    return f"the plugins are {', '.join(plugins) or 'none'}"
