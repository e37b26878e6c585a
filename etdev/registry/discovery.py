"""The installed plugins: found by entry points, imported, and made with the registry's options."""

from __future__ import annotations

import copy
import importlib.util
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, distributions, packages_distributions, version
from typing import Any

import attrs
import cattrs

from etdev.errors import PluginError, first_line
from etdev.registry.extensions import REINSTALL, Candidate, candidates
from etdev.registry.manifest import manifest_in
from etdev.registry.plugin import Plugin, check_api
from etdev.registry.registry import PluginEntry, Registry
from etdev.registry.watchdog import waiting_for
from etdev.schema.structuring import clause, problems, strict_converter

GROUP = "etdev"
# Comes with etdev, as pytest's own plugins come with it: whatever else is installed, trusted or
# listed, and without importing it before it is asked.
BUILTIN = EntryPoint("portable", "etdev.portable.plugin:Portable", GROUP)


def find_plugins(registry: Registry) -> dict[str, list[Candidate]]:
    """Return the installed plugins and partitioners by name, several if distributions clash."""
    found = {}
    for name, known in candidates(GROUP).items():
        # A distribution outside `trusted` can't take a name from one inside it.
        found[name] = [each for each in known if registry.trusts(each.distribution)] or known
    # The registry's own partitioner beats an installed plugin of that name.
    listed = (entry for entry in registry.entries if _is_installed(entry.partitioner))
    return {**found, **{entry.name: [_partitioner(entry)] for entry in listed}}


def load_builtin(registry: Registry) -> Plugin:
    """Load the plugin of portable kernels."""
    own = next((known.version for known in distributions(name="etdev")), "")
    return load_plugin(Candidate(BUILTIN, "etdev", own), registry)


def load_plugin(candidate: Candidate, registry: Registry) -> Plugin:
    """Import a plugin and make it with its options, in the time that it has.

    One whose manifest is for other hooks is refused before it is imported.
    """
    entry, listed = candidate.entry, registry.entry(candidate.entry.name)
    limit_s, adapted = listed.limits.hook_timeout_s, entry.value == listed.partitioner
    needed = f"install what {entry.module} needs, or remove it from the registry" if adapted else ""
    if known := None if adapted else manifest_in(entry.value):
        check_api(candidate.title, candidate.distribution, known.etdev_api)
    target = candidate.imported(needed or REINSTALL, limit_s)
    with waiting_for(entry.name, "its constructor", limit_s):
        implementation = make_plugin(candidate.title, target, listed.options)
        if adapted:
            from etdev.registry.adapted import adapt

            implementation = adapt(implementation, name=entry.name)
    return Plugin(
        entry.name,
        implementation,
        candidate.distribution,
        candidate.version,
        listed.limits,
        (entry.value, adapted, listed.options),
        builtin=entry is BUILTIN,
    )


def make_plugin(title: str, target: Any, options: Mapping[str, Any]) -> Any:
    """Return the object that an entry point names; call a class or function with its options."""
    is_called = inspect.isclass(target) or inspect.isroutine(target)
    if not is_called:
        if options:
            raise PluginError(title, f"takes no options, got {', '.join(options)}", "remove them")
        return target
    # A copy: the registry may make another plugin later.
    own = copy.deepcopy(dict(options))
    try:
        return strict_converter().structure(own, target) if attrs.has(target) else target(**own)
    except cattrs.BaseValidationError as error:
        known = ", ".join(field.name for field in attrs.fields(target) if field.init) or "none"
        what = "; ".join(map(clause, problems(error)))
        raise PluginError(title, f"bad options: {what}", f"its options are {known}") from error
    except (PluginError, KeyboardInterrupt):
        raise
    except BaseException as error:
        what = f"could not be made: {first_line(error)}"
        raise PluginError(title, what, "check its options") from error


def _is_installed(partitioner: str) -> bool:
    """Return True if the registry names a partitioner of a package that is installed."""
    package = partitioner.partition(":")[0].partition(".")[0]
    return bool(package) and importlib.util.find_spec(package) is not None


def _partitioner(listed: PluginEntry) -> Candidate:
    entry = EntryPoint(listed.name, listed.partitioner, GROUP)
    package = entry.module.partition(".")[0]
    # Where several distributions share a package, none is trusted for it.
    names = sorted(set(packages_distributions().get(package, [])))
    own = version(names[0]) if len(names) == 1 else ""
    return Candidate(entry, " and ".join(names) or package, own)
