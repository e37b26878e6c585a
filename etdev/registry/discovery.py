"""Which plugins are installed, and where each comes from."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

from etdev.errors import PluginError, first_line
from etdev.registry.extensions import Offer, offers
from etdev.registry.options import call_with, make_plugin
from etdev.registry.plugin import Plugin
from etdev.registry.registry import PluginEntry, Registry
from etdev.registry.watchdog import waiting_for
from etdev.schema.limits import Limits

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

    def load(
        self, settings: Mapping[str, Any], limits: Limits, registry: Registry | None = None
    ) -> Plugin:
        """Import it and make the plugin with its options, in the time that it has.

        Args:
            settings: The options.
            limits: How long it may take.
            registry: Where they come from, for messages.

        Raises:
            PluginError: It can't be imported or made, or is not a plugin.
        """
        if not EntryPoint.pattern.match(self.entry.value):
            what = f"has the entry point {self.entry.value!r}, which can't be read"
            raise PluginError(self.title, what, "write package.module:Class")
        try:
            with waiting_for(self.entry.name, "its import", limits.hook_timeout_s):
                target = self.entry.load()
        except (PluginError, KeyboardInterrupt):
            raise
        # A script taken for a plugin calls sys.exit, which would end `etdev plugins` silently.
        except BaseException as error:
            cure = "reinstall or uninstall it"
            if self.adapted:
                cure = f"install what {self.entry.module} needs, or remove it from the registry"
            raise PluginError(
                self.title, f"import failed with {first_line(error)}", cure
            ) from error
        make = self._adapt if self.adapted else make_plugin
        what = "its constructor" if inspect.isclass(target) else "what makes it"
        try:
            with waiting_for(self.entry.name, what, limits.hook_timeout_s):
                implementation = make(self.title, target, settings)
        except PluginError as error:
            raise self._placed(error, registry, settings) from error.__cause__
        made = self.entry.value, self.adapted, settings
        return Plugin(
            self.entry.name,
            implementation,
            self.distribution,
            self.version,
            limits,
            made,
            builtin=self.entry is BUILTIN,
        )

    def _placed(
        self, error: PluginError, registry: Registry | None, options: Mapping[str, Any]
    ) -> PluginError:
        """An error about options, with the line of the first option that it names."""
        for option in options:
            named = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", error.what)
            keys = ("plugins", self.entry.name, "options", option)
            if named and registry and (place := registry.place(*keys)):
                return type(error)(error.who, f"{error.what} ({place})", error.cure)
        return error

    def _adapt(self, title: str, target: Any, settings: Mapping[str, Any]) -> Any:
        from executorch.exir.backend.partitioner import Partitioner

        from etdev.registry.adapted import adapt

        # A partitioner is callable, too: that partitions.
        is_object = isinstance(target, Partitioner) or not callable(target)
        make = make_plugin if is_object else call_with
        return adapt(make(title, target, settings), name=self.entry.name)


def builtin_origin() -> Origin:
    """Return where the built-in plugin comes from."""
    try:
        version = importlib.metadata.version("etdev")
    except importlib.metadata.PackageNotFoundError:
        # Such as a copy of the package that pip did not install.
        version = ""
    return Origin(BUILTIN, "etdev", version)


def find_origins(registry: Registry) -> dict[str, list[Origin]]:
    """Find the plugins that are installed.

    Args:
        registry: Tells which distributions are trusted, and names partitioners.

    Returns:
        The origins of each plugin, by its name: more than one if distributions clash.
    """
    installed = _entry_points()
    # A distribution outside `trusted` can't take a name from one inside it.
    trusted = {
        name: [origin for origin in origins if registry.trusts(origin.distribution)]
        for name, origins in installed.items()
    }
    installed = {name: trusted[name] or origins for name, origins in installed.items()}
    # What the registry itself names beats what happens to be installed under that name.
    named = {e.name: [_partitioner(e)] for e in registry.entries if _is_installed(e)}
    return {**installed, **named}


def _entry_points() -> dict[str, list[Origin]]:
    """Return the plugins' entry points, by name."""
    return {
        name: [Origin(offer.entry, offer.distribution, offer.version) for offer in known]
        for name, known in offers(GROUP).items()
    }


def _is_installed(entry: PluginEntry) -> bool:
    """Whether the registry names a partitioner of a package that is installed."""
    package = entry.partitioner.partition(":")[0].partition(".")[0]
    try:
        return bool(package) and importlib.util.find_spec(package) is not None
    # `__main__` may have no spec.
    except ValueError:
        return False


def _partitioner(listed: PluginEntry) -> Origin:
    entry = EntryPoint(listed.name, listed.partitioner, GROUP)
    names = _distributions(entry.module)
    if len(names) != 1:
        # Where several share a package and none owns the module, all must be trusted.
        name = " and ".join(names) or entry.module.partition(".")[0]
        return Origin(entry, name, adapted=True)
    return Origin(entry, names[0], importlib.metadata.version(names[0]), adapted=True)


def _distributions(module: str) -> list[str]:
    """The distribution that has a module; several if they share its package."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    path = module.replace(".", "/")
    files = {f"{path}.py", f"{path}/__init__.py"}
    exact = [
        name
        for name in names
        if files & {str(file) for file in importlib.metadata.distribution(name).files or ()}
    ]
    return sorted(set(exact or names))
