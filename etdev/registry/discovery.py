"""The installed plugins, and the distributions that they come from."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import re
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

from etdev.errors import PluginError
from etdev.registry.extensions import Offer, offers
from etdev.registry.options import call_with, make_plugin
from etdev.registry.plugin import Plugin
from etdev.registry.registry import PluginEntry, Registry
from etdev.registry.watchdog import waiting_for

GROUP = "etdev"
# Comes with etdev, as pytest's own plugins come with it: whatever else is installed, trusted or
# listed, and without importing it before it is asked.
BUILTIN = EntryPoint("portable", "etdev.portable.plugin:Portable", GROUP)


@frozen
class Origin(Offer):
    """The entry point of a plugin, or a partitioner that the registry names.

    Args:
        adapted: The object is an ExecuTorch Partitioner.
    """

    adapted: bool = False

    def load(self, registry: Registry) -> Plugin:
        """Import it and make the plugin with its options, in the time that it has.

        Args:
            registry: The registry with the plugin's options and limits.

        Raises:
            PluginError: It can't be imported or made, or is not a plugin.
        """
        listed = registry.entry(self.entry.name)
        limits, options = listed.limits, listed.options
        cure = "reinstall or uninstall it"
        if self.adapted:
            cure = f"install what {self.entry.module} needs, or remove it from the registry"
        target = self.imported(cure, limits.hook_timeout_s)
        what = "its constructor" if inspect.isclass(target) else "its factory"
        try:
            with waiting_for(self.entry.name, what, limits.hook_timeout_s):
                implementation = self._make(target, listed)
        except PluginError as error:
            raise self._placed(error, registry, listed) from error.__cause__
        return Plugin(
            self.entry.name,
            implementation,
            self.distribution,
            self.version,
            limits,
            (self.entry.value, self.adapted, options),
            builtin=self.entry is BUILTIN,
        )

    def _make(self, target: Any, listed: PluginEntry) -> Any:
        if not self.adapted:
            return make_plugin(self.title, target, listed.options)
        from executorch.exir.backend.partitioner import Partitioner

        from etdev.registry.adapted import adapt

        # A partitioner is callable, too: that partitions.
        is_object = isinstance(target, Partitioner) or not callable(target)
        make = make_plugin if is_object else call_with
        return adapt(make(self.title, target, listed.options), name=self.entry.name)

    def _placed(self, error: PluginError, registry: Registry, listed: PluginEntry) -> PluginError:
        """Return an error about options, with the line of the first option that it names."""
        for option in listed.options:
            place = registry.place("plugins", self.entry.name, "options", option)
            if place and re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", error.what):
                return type(error)(error.who, f"{error.what} ({place})", error.cure)
        return error


def builtin_origin() -> Origin:
    """Return the origin of the built-in plugin."""
    try:
        version = importlib.metadata.version("etdev")
    except importlib.metadata.PackageNotFoundError:
        # Such as a copy of the package that pip did not install.
        version = ""
    return Origin(BUILTIN, "etdev", version)


def find_origins(registry: Registry) -> dict[str, list[Origin]]:
    """Find the plugins that are installed.

    Args:
        registry: Names the trusted distributions, and partitioners.

    Returns:
        The origins of each plugin, by its name: more than one if distributions clash.
    """
    found = {}
    for name, known in offers(GROUP).items():
        origins = [Origin(offer.entry, offer.distribution, offer.version) for offer in known]
        # A distribution outside `trusted` can't take a name from one inside it.
        found[name] = [o for o in origins if registry.trusts(o.distribution)] or origins
    # The registry's own partitioner beats an installed plugin of that name.
    return {**found, **{e.name: [_partitioner(e)] for e in registry.entries if _is_installed(e)}}


def _is_installed(entry: PluginEntry) -> bool:
    """Return True if the registry names a partitioner of a package that is installed."""
    package = entry.partitioner.partition(":")[0].partition(".")[0]
    try:
        return bool(package) and importlib.util.find_spec(package) is not None
    # `__main__` may have no spec.
    except ValueError:
        return False


def _partitioner(listed: PluginEntry) -> Origin:
    entry = EntryPoint(listed.name, listed.partitioner, GROUP)
    package, path = entry.module.partition(".")[0], entry.module.replace(".", "/")
    names = importlib.metadata.packages_distributions().get(package, [])
    files = {f"{path}.py", f"{path}/__init__.py"}
    owners = [
        name
        for name in names
        if files & {str(file) for file in importlib.metadata.distribution(name).files or ()}
    ]
    # Where several share a package and none owns the module, all must be trusted.
    names = sorted(set(owners or names))
    version = importlib.metadata.version(names[0]) if len(names) == 1 else ""
    return Origin(entry, " and ".join(names) or package, version, adapted=True)
