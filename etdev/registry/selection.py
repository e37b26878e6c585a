"""The choice of the plugins to ask, and their order."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, field

from etdev.errors import (
    ApiError,
    EtdevError,
    EtdevWarning,
    PluginError,
    close_to,
    install_hint,
)
from etdev.registry.answers import probe
from etdev.registry.discovery import BUILTIN, find_plugins, load_builtin, load_plugin, make_plugin
from etdev.registry.extensions import AUTOLOAD_OFF, Candidate, autoload, the_only
from etdev.registry.manifest import Manifest, manifest_in
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry, own_distributions
from etdev.registry.watchdog import waiting_for
from etdev.schema.device import Probe


@define
class Finding:
    """A plugin as `etdev plugins` lists it: ready, unfit, or broken, with the reason."""

    name: str
    # Empty if it is not installed.
    distribution: str = ""
    version: str = ""
    # None if it can't be used, or if its probe failed; the problem says why.
    plugin: Plugin | None = None
    probed: Probe | None = None
    problem: str = ""
    # What it says of itself without being imported; None without a manifest.
    manifest: Manifest | None = None
    # A lowering that names no plugins asks it.
    asked: bool = False


def discover(registry: Registry) -> list[Finding]:
    """List all plugins that are installed or in the registry, in claim order, broken ones too."""
    choice = _Choice(registry)
    names = dict.fromkeys([*choice.order(), *sorted(choice.installed)])
    plugin = load_builtin(registry)
    last = Finding(plugin.name, plugin.distribution, plugin.version, plugin, probe(plugin))
    last.asked = registry.portable
    findings = (choice.examine(name) for name in names)
    return [*(f for f in findings if not (f.plugin and f.plugin.idle)), last]


def select(registry: Registry, wanted: Sequence[object] | None = None) -> list[Plugin]:
    """Load the plugins to ask, in claim order; the built-in one comes last.

    These are the names and objects in `wanted`, or the installed plugins in the registry's order.
    """
    if isinstance(wanted, (str, Mapping)) or not isinstance(wanted, (Sequence, type(None))):
        raise PluginError("plugins", f"{wanted!r} is not a list", 'write plugins=["cpu"]')
    choice, plugins = _Choice(registry), list[Plugin]()
    # All names before the first import: it may take seconds.
    for item in choice.checked(wanted):
        try:
            plugins.append(choice.load(item) if isinstance(item, str) else from_object(item))
        except ApiError as error:
            if wanted is not None or not registry.entry(item).optional:
                raise
            warnings.warn(f"left out {error}", EtdevWarning, stacklevel=4)
    if wanted is None:
        plugins = [plugin for plugin in plugins if not plugin.idle]
    for index, plugin in enumerate(plugins):
        if plugin.name in [other.name for other in plugins[:index]]:
            raise PluginError(plugin.name, "is given twice", "give each plugin its own name")
    return [*plugins, load_builtin(registry)] if _asks_builtin(registry, wanted) else plugins


def names_of(registry: Registry, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the names of the plugins that `select` would load; import none of them."""
    names = _Choice(registry).checked(wanted)
    return [*names, BUILTIN.name] if _asks_builtin(registry, wanted) else names


def _asks_builtin(registry: Registry, wanted: Sequence[object] | None) -> bool:
    return registry.portable or BUILTIN.name in (wanted or ())


def from_object(item: object) -> Plugin:
    """Make a Plugin of a plugin object, or of a plugin class without options.

    Its name is its attribute `name`, else the name of its class or module.
    """
    if inspect.isclass(item):
        with waiting_for(item.__name__, "its constructor"):
            item = make_plugin(item.__name__, item, {})
    own = getattr(item, "__name__", type(item).__name__).rpartition(".")[2]
    name = getattr(item, "name", None)
    return Plugin(own if name is None else name, item)


@define(eq=False)
class _Choice:
    """The installed plugins, as a registry has them asked."""

    registry: Registry
    installed: Mapping[str, list[Candidate]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.installed = find_plugins(self.registry)

    def order(self) -> list[str]:
        """Return the names of the plugins that may be asked, in claim order."""
        # By name, because entry points come back in directory order, which machines disagree on.
        every, registry = autoload(), self.registry
        names = [name for name in registry.names if name != BUILTIN.name]
        unlisted = sorted(set(self.installed) - set(names)) if every else []
        listed = [name for name in names if every or not registry.entry(name).optional]
        order = {"first": unlisted + listed, "last": listed + unlisted, "ignore": listed}
        return order[registry.unlisted]

    def default(self) -> list[str]:
        """Return the names of the plugins that a Lowerer without `plugins=` asks."""
        return [
            name
            for name in self.order()
            # A distribution outside `trusted` counts as not installed for an optional plugin.
            if not self.registry.entry(name).optional
            or (name in self.installed and self._trusts(name))
        ]

    def checked(self, wanted: Sequence[Any] | None) -> list[Any]:
        """Return the names and objects to ask; refuse a name that can't be loaded."""
        chosen = self.default() if wanted is None else [i for i in wanted if i != BUILTIN.name]
        for name in chosen:
            if isinstance(name, str):
                self._candidate(name)
        return chosen

    def load(self, name: str) -> Plugin:
        return load_plugin(self._candidate(name), self.registry)

    def _trusts(self, name: str) -> bool:
        return self.registry.trusts(self.installed[name][0].distribution)

    def _candidate(self, name: str) -> Candidate:
        """Return where a plugin comes from, if it is installed, unambiguous and trusted."""
        if name not in self.installed:
            if partitioner := self.registry.entry(name).partitioner:
                cure = "install its package, or remove it from the registry"
                raise PluginError(name, f"{partitioner} is not installed", cure)
            raise self._not_installed(name)
        candidate = the_only(name, self.installed)
        if not self._trusts(name):
            trusted = ", ".join(self.registry.trusted or ()) or "nothing"
            place = f"{self.registry.path}, which trusts {trusted}"
            what = f"{candidate.distribution} is not trusted by {place}"
            raise PluginError(name, what, "add it to trusted")
        return candidate

    def _not_installed(self, name: str) -> PluginError:
        known = sorted(self.installed)
        place = self.registry.path if name in self.registry.names else None
        listed = f", but listed in {place}" if place else ""
        others = f"installed are {', '.join(known)}" if known else "none is installed"
        own = own_distributions()
        cure = install_hint(own[name]) if name in own else ""
        cure = cure or self._with_backend(name)
        cure = cure or close_to(name, dict.fromkeys([*known, *self.registry.names, *own]))
        return PluginError(name, f"not installed{listed}", f"{cure} ({others})" if cure else others)

    def _with_backend(self, name: str) -> str:
        """Return `did you mean cpu?` for the name of a backend that a plugin's manifest has."""
        for plugin, candidates in self.installed.items() if len(name) > 2 else ():
            with suppress(EtdevError):
                known = manifest_in(candidates[0].entry.value)
                if known and any(name.lower() in other.lower() for other in known.backends):
                    return f"did you mean {plugin}?"
        return ""

    def examine(self, name: str) -> Finding:
        """Load a plugin and ask for its devices; a failure becomes its problem."""
        finding = Finding(name, asked=name in self.default())
        if candidates := self.installed.get(name):
            first = candidates[0]
            finding.distribution, finding.version = first.distribution, first.version
        if not autoload() and name not in self.order():
            finding.problem = f"not loaded, as {AUTOLOAD_OFF} is set; name it to load it"
            return finding
        try:
            finding.manifest = manifest_in(candidates[0].entry.value) if candidates else None
            finding.plugin = self.load(name)
            finding.probed = probe(finding.plugin)
        except EtdevError as error:
            unmet = finding.manifest.unmet() if finding.manifest else ()
            finding.problem = "; ".join(filter(None, (error.what, *unmet, error.cure)))
        if finding.plugin and name not in self.registry.names and not finding.asked:
            place = self.registry.path or "the registry"
            finding.plugin, finding.manifest, finding.problem = None, None, f"not in {place}"
        return finding
