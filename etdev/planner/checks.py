"""Checks of the user's settings against the plugins, and of plans against the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from etdev.errors import (
    BudgetError,
    LoweringError,
    PinError,
    PluginError,
    RegistryError,
    warn_or_raise,
)
from etdev.registry.registry import Registry
from etdev.schema.cost import Workload, total
from etdev.schema.device import ANY_METHOD
from etdev.schema.ledger import Entry, together
from etdev.schema.limits import Budget
from etdev.schema.options import Options
from etdev.schema.pins import Pin
from etdev.schema.plan import MethodPlan
from etdev.schema.wording import listed

# More nodes than these are counted instead of named.
_NAMED = 5


def check_asked(given: Options, registry: Registry, plugins: Collection[str]) -> None:
    """Refuse explicit settings about a plugin that is not asked, and pins to unknown plugins."""
    for pin in registry.pins:
        _check_listed(pin, registry, plugins)
    asked = f"the plugins are {', '.join(plugins) or 'none'}"
    for name in given.devices:
        if name not in plugins:
            raise PluginError(str(name), "is pinned to a device but not asked", asked)
    for pin in given.pins:
        if pin.plugin not in plugins:
            raise PinError(f"pin {pin}", f"{pin.plugin} is not asked", asked)
    for name in given.limits:
        if name not in plugins:
            raise PluginError(str(name), "has limits but is not asked", asked)


def check_methods(given: Options, options: Options, methods: Collection[str]) -> None:
    """Refuse an explicit device for a method that the program does not have.

    Warn of plugins that are asked about none of its methods, or pinned in none. The registry is for
    many programs and may name more methods.
    """
    for plugin, devices in given.devices.items():
        for method in devices:
            if method != ANY_METHOD and method not in methods:
                what = f"is pinned in the unknown method {method!r}"
                raise PluginError(plugin, what, "name one of the program's")
    named = [(plugin, "asked about", own.methods) for plugin, own in options.limits.items()]
    named += [(plugin, "pinned in", tuple(own)) for plugin, own in options.devices.items()]
    for plugin, verb, own in named:
        if own and not {*own} & {*methods, ANY_METHOD}:
            what = f"is {verb} {', '.join(own)} only, which the program lacks"
            warn_or_raise(PluginError(plugin, what, f"it has {', '.join(methods)}"), False)


def check_matched(options: Options, matched: Collection[Pin]) -> None:
    """Warn of pins that matched nothing in any method; refuse them under `strict`."""
    for pin in dict.fromkeys(options.pins):
        if pin not in matched:
            cure = "etdev plan --json lists them all"
            warn_or_raise(PinError(f"pin {pin}", "matches no node", cure), options.strict)


def check_plans(options: Options, plans: Sequence[MethodPlan]) -> None:
    """Refuse plans that exceed the budget or, under `strict`, don't keep a pin."""
    missed = _matching(plans, lambda entry: not entry.pin_kept)
    if missed and options.strict:
        names = dict.fromkeys(str(entry.pin) for _, entry in missed)
        what = f"is not kept for {_listed(missed)}"
        cure = "narrow it, or lower without strict, which leaves these to portable kernels"
        raise PinError(f"pin {', '.join(names)}", what, cure)
    if options.budget:
        _check_budget(options.budget, plans)


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
    for plan in plans if budget.fallback_share is not None else ():
        _check_share(budget, plan, [entry for method, entry in over if method == plan.method])


def _check_share(budget: Budget, plan: MethodPlan, over: Sequence[Entry]) -> None:
    """Refuse a plan whose nodes on portable kernels have a larger part of its cost."""
    limit, whole = budget.fallback_share or 0, total(plan.ledger.costs())
    own = sum((entry.cost for entry in over if entry.cost), Workload())
    most = limit * whole.flops, limit * whole.moved_bytes
    if own.flops > most[0] or own.moved_bytes > most[1]:
        slowest = sorted(over, key=lambda entry: -entry.seconds)
        raise BudgetError(
            "budget",
            f"{limit:.0%} of the cost of {plan.method} may be left to portable kernels, not "
            f"{own.share(whole)}: {_listed([(plan.method, entry) for entry in slowest])}",
            "raise fallback_share, allow their ops with fallback_ops, or add a plugin",
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
