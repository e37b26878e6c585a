"""Origin: where a plugin comes from, an entry point or a partitioner that the registry names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

from etdev.errors import PluginError, first_line
from etdev.registry import options
from etdev.registry.plugin import Plugin
from etdev.registry.registry import PluginEntry, Registry

GROUP = "etdev"
_UNKNOWN = "unknown"


@frozen
class Origin:
    """One place that offers a plugin; nothing of it is imported yet.

    Args:
        entry: Name, module and object.
        distribution: What pip calls it; a module without distribution goes by its own name.
        version: Version of that distribution.
        adapted: The object is an ExecuTorch Partitioner.
    """

    entry: EntryPoint
    distribution: str
    version: str = ""
    adapted: bool = False

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        return f"{self.entry.name} ({f'{self.distribution} {self.version}'.strip()})"

    def load(self, settings: Mapping[str, Any]) -> Plugin:
        """Import it and make the plugin with its options.

        Raises:
            PluginError: It can't be imported or made, or is no plugin.
        """
        try:
            target = self.entry.load()
        # A script taken for a plugin calls sys.exit, which would end `etdev plugins` silently.
        except (Exception, SystemExit) as error:
            cure = "reinstall or uninstall it"
            if self.adapted:
                cure = f"install what {self.entry.module} needs, or remove it from the registry"
            raise PluginError(
                self.title, f"import failed with {first_line(error)}", cure
            ) from error
        if self.adapted:
            made: Any = self._adapted(target, settings)
        else:
            made = options.make(self.title, target, settings)
        return Plugin(self.entry.name, made, self.distribution, self.version)

    def _adapted(self, target: Any, settings: Mapping[str, Any]) -> Any:
        from executorch.exir.backend.partitioner import Partitioner

        from etdev.registry.adapted import adapt

        # A partitioner can be called itself, which partitions.
        made = isinstance(target, Partitioner) or not callable(target)
        make = options.make if made else options.call
        return adapt(make(self.title, target, settings), name=self.entry.name)


def installed(registry: Registry) -> dict[str, list[Origin]]:
    """All that offers plugins here, by the plugin's name."""
    found: dict[str, list[Origin]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        distribution = entry.dist
        name, version = (
            (distribution.name, distribution.version) if distribution else (_UNKNOWN, "")
        )
        same = found.setdefault(entry.name, [])
        # One distribution seen twice on sys.path (an editable install) is no clash.
        if (name, version) not in [(other.distribution, other.version) for other in same]:
            same.append(Origin(entry, name, version))
    # A distribution outside `trusted` can't take a name from one inside it.
    trusted = {
        name: [origin for origin in same if registry.trusts(origin.distribution)]
        for name, same in found.items()
    }
    found = {name: trusted[name] or same for name, same in found.items()}
    # What the registry says itself beats what happens to be installed under that name.
    named = {entry.name: [_partitioner(entry)] for entry in registry.entries if _is_here(entry)}
    return {**found, **named}


def _is_here(entry: PluginEntry) -> bool:
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
        # Two that share a package and don't say whose the module is must both be trusted.
        name = " and ".join(names) or entry.module.partition(".")[0]
        return Origin(entry, name, adapted=True)
    return Origin(entry, names[0], importlib.metadata.version(names[0]), adapted=True)


def _distributions(module: str) -> list[str]:
    """Distributions that a module is from; several if it can't be told."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    path = module.replace(".", "/")
    files = {f"{path}.py", f"{path}/__init__.py"}
    exact = [
        name
        for name in names
        if files & {str(file) for file in importlib.metadata.distribution(name).files or ()}
    ]
    return sorted(set(exact or names))
