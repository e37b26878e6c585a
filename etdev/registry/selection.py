"""Which plugins are asked, and in which order."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define

from etdev.errors import ApiError, EtdevError, EtdevWarning, PluginError, first_line
from etdev.registry.answers import probe
from etdev.registry.discovery import BUILTIN, Origin, builtin_origin, find_origins
from etdev.registry.extensions import AUTOLOAD_OFF, autoload
from etdev.registry.names import not_installed
from etdev.registry.options import make_plugin
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Probe


@define
class Finding:
    """A plugin as `etdev plugins` lists it: ready, unfit, or broken, with the reason.

    Args:
        name: Its entry-point name.
        distribution: What pip calls it; empty if it is not installed.
        version: Version of that distribution.
        plugin: The checked plugin; None if it can't be used.
        probed: What it finds on this machine; None if its probe failed.
        problem: Why it can't be used, in one line.
        asked: A lowering that names no plugins asks it.
    """

    name: str
    distribution: str = ""
    version: str = ""
    plugin: Plugin | None = None
    probed: Probe | None = None
    problem: str = ""
    asked: bool = False

    @property
    def broken(self) -> bool:
        """Whether it stops every lowering that names no plugins."""
        return self.asked and self.plugin is None


def discover(registry: Registry) -> list[Finding]:
    """List all plugins that are installed or in the registry, in claim order, broken ones too."""
    installed = find_origins(registry)
    order = _order(registry, installed)
    names = dict.fromkeys([*order, *sorted(installed)])
    findings = [_examine(name, registry, installed, name in order) for name in names]
    asked = _chosen(registry, installed)
    for finding in findings:
        finding.asked = finding.name in asked
    return [*findings, _examine_builtin(registry)]


def _examine_builtin(registry: Registry) -> Finding:
    """Load the built-in plugin and ask what it finds on this machine."""
    plugin, origin = _builtin(registry), builtin_origin()
    finding = Finding(plugin.name, origin.distribution, origin.version, plugin)
    finding.probed, finding.asked = probe(plugin), registry.portable
    return finding


def _examine(
    name: str, registry: Registry, installed: Mapping[str, list[Origin]], in_order: bool
) -> Finding:
    """Load a plugin and ask what it finds on this machine; whatever fails is the problem."""
    finding = Finding(name)
    if origins := installed.get(name):
        finding.distribution, finding.version = origins[0].distribution, origins[0].version
    if not autoload() and not in_order:
        finding.problem = f"not loaded, as {AUTOLOAD_OFF} is set; name it to load it"
        return finding
    try:
        finding.plugin = _load(name, registry, installed)
        finding.probed = probe(finding.plugin)
    except EtdevError as error:
        finding.problem = f"{error.what}; {error.cure}" if error.cure else error.what
    if finding.plugin and name not in registry.names and registry.unlisted == "ignore":
        finding.plugin, finding.problem = None, f"not in {registry.path or 'the registry'}"
    return finding


def select(registry: Registry, wanted: Sequence[object] | None = None) -> list[Plugin]:
    """Load the plugins to ask, in claim order; the built-in one comes last.

    Args:
        registry: Order, options and trust.
        wanted: Names and plugin objects, in claim order; None takes what is installed, in the
            order of the registry. The built-in one need not be among them.

    Raises:
        PluginError: One of them is missing, broken or named twice.
    """
    if isinstance(wanted, (str, Mapping)) or not isinstance(wanted, (Sequence, type(None))):
        raise PluginError("plugins", f"{wanted!r} is not a list", 'write plugins=["cpu"]')
    installed = find_origins(registry)
    builtin = [_builtin(registry)] if _wants_builtin(registry, wanted) else []
    wanted = None if wanted is None else [item for item in wanted if not _is_builtin(item)]
    chosen = _chosen(registry, installed) if wanted is None else wanted
    for name in chosen:
        # All names before the first import: it may take seconds.
        if isinstance(name, str):
            _origin(name, registry, installed)
    if wanted is None:
        plugins = _load_all([str(name) for name in chosen], registry, installed)
    else:
        plugins = [
            _load(item, registry, installed) if isinstance(item, str) else from_object(item)
            for item in wanted
        ]
    for index, plugin in enumerate(plugins):
        if plugin.name in [other.name for other in plugins[:index]]:
            raise PluginError(plugin.name, "is given twice", "give each plugin its own name")
    return [*plugins, *builtin]


def _load_all(
    names: Sequence[str], registry: Registry, installed: Mapping[str, list[Origin]]
) -> list[Plugin]:
    """Load what was not asked for by name; an error says how to do without."""
    plugins = []
    for name in names:
        try:
            plugins.append(_load(name, registry, installed))
        except PluginError as error:
            if isinstance(error, ApiError) and registry.entry(name).optional:
                warnings.warn(f"left out {error}", EtdevWarning, stacklevel=5)
                continue
            others = [other for other in names if other != name]
            if not others:
                raise
            without = f"--plugin {' --plugin '.join(others)}"
            cure = f"{error.cure}, or name the others: {without}"
            raise PluginError(error.who, error.what, cure) from error.__cause__
    return plugins


def names_of(registry: Registry, wanted: Sequence[str] | None = None) -> list[str]:
    """Names of the plugins that `select` would load; imports none of them.

    Raises:
        PluginError: One is missing, clashes or is not trusted.
    """
    installed = find_origins(registry)
    names = _chosen(registry, installed) if wanted is None else list(wanted)
    names = [name for name in names if not _is_builtin(name)]
    for name in names:
        _origin(name, registry, installed)
    return [*names, BUILTIN.name] if _wants_builtin(registry, wanted) else names


def from_object(item: object) -> Plugin:
    """Make a Plugin of a plugin object, or of a plugin class without options.

    Its name is its attribute `name`, else the name of its class or module.
    """
    if inspect.isclass(item):
        with waiting_for(item.__name__, "its constructor"):
            item = make_plugin(item.__name__, item, {})
    kind = type(item).__name__
    try:
        name = getattr(item, "name", None)
    except Exception as error:
        what = f"its name can't be read: {first_line(error)}"
        raise PluginError(kind, what, 'write name = "my-npu"') from error
    if name is None:
        name = getattr(item, "__name__", kind).rpartition(".")[2]
    return Plugin(name, item)


def _chosen(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    """Names of the plugins that a Lowerer without `plugins=` asks."""
    names = []
    for name in _order(registry, installed):
        if registry.entry(name).optional and name not in installed:
            continue
        # A distribution outside `trusted` counts as not installed, unless its plugin is required.
        if registry.entry(name).optional and not registry.trusts(installed[name][0].distribution):
            continue
        names.append(name)
    return names


def _order(registry: Registry, installed: Mapping[str, Any]) -> list[str]:
    """Names of the plugins that may be asked, in claim order."""
    # By name, because entry points come back in directory order, which machines disagree on.
    every = autoload()
    names = [name for name in registry.names if not _is_builtin(name)]
    unlisted = sorted(set(installed) - set(names)) if every else []
    listed = [name for name in names if every or not registry.entry(name).optional]
    order = {"first": unlisted + listed, "last": listed + unlisted, "ignore": listed}
    return order[registry.unlisted]


def _is_builtin(item: object) -> bool:
    return isinstance(item, str) and item == BUILTIN.name


def _wants_builtin(registry: Registry, wanted: Sequence[object] | None) -> bool:
    """Return True if the built-in plugin is asked: it is named, or the registry has it."""
    return registry.portable or any(map(_is_builtin, wanted or ()))


def _builtin(registry: Registry) -> Plugin:
    """Load the plugin that comes with etdev."""
    listed = registry.entry(BUILTIN.name)
    return builtin_origin().load(listed.options, listed.limits, registry)


def _load(name: str, registry: Registry, installed: Mapping[str, list[Origin]]) -> Plugin:
    """Import a plugin by name, if it is installed, unambiguous and trusted."""
    origin = _origin(name, registry, installed)
    listed = registry.entry(name)
    return origin.load(listed.options, listed.limits, registry)


def _origin(name: str, registry: Registry, installed: Mapping[str, list[Origin]]) -> Origin:
    """Where a plugin comes from, if it is installed, unambiguous and trusted."""
    origins = installed.get(name)
    listed = registry.entry(name)
    if not origins and listed.partitioner:
        what = f"{listed.partitioner} is not installed"
        raise PluginError(name, what, "install its package, or remove it from the registry")
    if not origins:
        raise not_installed(name, registry, installed)
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
    return origins[0]
