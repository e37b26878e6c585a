"""Plugins: which are installed, which are wanted, and in which order they are asked."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define

from etdev.errors import EtdevError, PluginError
from etdev.registry import discovery, options
from etdev.registry.answers import probe
from etdev.registry.discovery import Origin
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry
from etdev.schema.device import Probe
from etdev.schema.pins import PORTABLE

AUTOLOAD_OFF = "ETDEV_DISABLE_PLUGIN_AUTOLOAD"


@define
class Finding:
    """A plugin as `etdev plugins` lists it: ready, unfit, or broken and why.

    Args:
        name: Its entry-point name.
        distribution: What pip calls it; empty if it is not installed.
        version: Version of that distribution.
        plugin: The checked plugin; None if it can't be used.
        probed: What it finds on this machine; None if its probe failed.
        problem: Why it can't be used, in one line.
    """

    name: str
    distribution: str = ""
    version: str = ""
    plugin: Plugin | None = None
    probed: Probe | None = None
    problem: str = ""


def discover(registry: Registry) -> list[Finding]:
    """Every plugin that is installed or listed, in claim order, the broken ones too."""
    installed = discovery.installed(registry)
    order = _order(registry, installed)
    found = []
    for name in dict.fromkeys([*order, *sorted(installed)]):
        finding = Finding(name)
        if origins := installed.get(name):
            finding.distribution, finding.version = origins[0].distribution, origins[0].version
        found.append(finding)
        if not _autoload() and name not in order:
            finding.problem = f"not loaded, as {AUTOLOAD_OFF} is set; name it to load it"
            continue
        try:
            finding.plugin = _load(name, registry, installed)
            finding.probed = probe(finding.plugin)
        except EtdevError as error:
            finding.problem = f"{error.what}; {error.cure}" if error.cure else error.what
        if finding.plugin and name not in registry.names and registry.unlisted == "ignore":
            finding.plugin, finding.problem = None, f"not in {registry.path or 'the registry'}"
    return found


def select(registry: Registry, wanted: Sequence[object] | None = None) -> list[Plugin]:
    """The plugins to ask, in claim order.

    Args:
        registry: Order, options and trust.
        wanted: Names and plugin objects, in claim order; None takes what is installed, in the
            order of the registry.

    Raises:
        PluginError: One of them is missing, broken or twice there.
    """
    if isinstance(wanted, (str, Mapping)) or not isinstance(wanted, (Sequence, type(None))):
        raise PluginError("plugins", f"{wanted!r} is no list", 'write plugins=["cpu"]')
    installed = discovery.installed(registry)
    chosen = _chosen(registry, installed) if wanted is None else wanted
    plugins = [
        _load(item, registry, installed) if isinstance(item, str) else from_object(item)
        for item in chosen
    ]
    for index, plugin in enumerate(plugins):
        if plugin.name == PORTABLE:
            raise PluginError(PORTABLE, "stands for no plugin at all", "give it another name")
        if plugin.name in [other.name for other in plugins[:index]]:
            raise PluginError(plugin.name, "is there twice", "give each plugin a name of its own")
    return plugins


def from_object(item: object) -> Plugin:
    """A plugin object, or a plugin class without options, as a Plugin.

    Its name is its attribute `name`, else the name of its class or module.
    """
    if inspect.isclass(item):
        item = options.make(item.__name__, item, {})
    name = getattr(item, "name", None)
    if not isinstance(name, str):
        name = getattr(item, "__name__", type(item).__name__).rpartition(".")[2]
    return Plugin(name, item)


def _chosen(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    """What a Lowerer without plugins= asks: the listed, and the unlisted if it takes them."""
    names = []
    for name in _order(registry, installed):
        if registry.entry(name).optional and name not in installed:
            continue
        # A distribution outside `trusted` is as good as not installed, unless it is demanded.
        if registry.entry(name).optional and not registry.trusts(installed[name][0].distribution):
            continue
        names.append(name)
    return names


def _order(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    # By name, because entry points come back in directory order, which machines disagree on.
    autoload = _autoload()
    unlisted = sorted(set(installed) - set(registry.names)) if autoload else []
    listed = [name for name in registry.names if autoload or not registry.entry(name).optional]
    order = {"first": unlisted + listed, "last": listed + unlisted, "ignore": listed}
    return order[registry.unlisted]


def _autoload() -> bool:
    return not os.environ.get(AUTOLOAD_OFF)


def _load(name: str, registry: Registry, installed: Mapping[str, list[Origin]]) -> Plugin:
    origins = installed.get(name)
    listed = registry.entry(name)
    if not origins and listed.partitioner:
        what = f"{listed.partitioner} is not installed"
        raise PluginError(name, what, "install its package, or remove it from the registry")
    if not origins:
        there = (
            f"installed are {', '.join(sorted(installed))}" if installed else "none is installed"
        )
        raise PluginError(name, "not installed", f"pip install etdev-{name} ({there})")
    if len(origins) > 1:
        owners = " and ".join(sorted(other.distribution for other in origins))
        raise PluginError(name, f"is offered by {owners}", "uninstall one of them")
    distribution = origins[0].distribution
    if not registry.trusts(distribution):
        trusted = ", ".join(registry.trusted or ()) or "nothing"
        raise PluginError(
            name,
            f"{distribution} is not trusted by {registry.path}, which trusts {trusted}",
            "add it to trusted",
        )
    return origins[0].load(listed.options)
