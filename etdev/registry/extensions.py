"""Entry points by which installed distributions add to etdev, such as commands and runners."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

from etdev.errors import PluginError, first_line, install_hint
from etdev.registry.watchdog import waiting_for

COMMANDS, NEW = "etdev.commands", "etdev.new"
RUNNERS, VIEWS, BUDGETS = "etdev.runners", "etdev.views", "etdev.budgets"
# Additions by etdev's own distributions, and the extra of etdev that installs each. No other name
# may be suggested to pip: anyone can upload a distribution called etdev-something.
EXTRAS = {
    COMMANDS: {"generate": "llm", "llm": "llm", "reduce": "reduce", "size": "cpp", "tune": "tune"},
    NEW: {"app": "cpp"},
    RUNNERS: {"cpp": "cpp"},
    VIEWS: {"html": "page", "node-data": "page"},
    BUDGETS: {"runtime_bytes": "cpp"},
}
# Set in the environment, it limits imports to what is named.
AUTOLOAD_OFF = "ETDEV_DISABLE_PLUGIN_AUTOLOAD"
REINSTALL = "reinstall or uninstall it"


@frozen
class Candidate:
    """An entry point with the distribution that has it; nothing is imported yet."""

    entry: EntryPoint
    # The package's name if no distribution has it.
    distribution: str
    version: str = ""

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        return f"{self.entry.name} ({f'{self.distribution} {self.version}'.strip()})"

    def imported(self, cure: str = REINSTALL, limit_s: float | None = None) -> Any:
        """Import the object that the entry point names, within `limit_s` seconds."""
        try:
            with waiting_for(self.entry.name, "its import", limit_s):
                return self.entry.load()
        except (PluginError, KeyboardInterrupt):
            raise
        # A module that calls sys.exit would end `etdev --help` silently.
        except BaseException as error:
            what = f"import failed with {first_line(error)}"
            raise PluginError(self.title, what, cure) from error


def autoload() -> bool:
    """Return True if extensions may be imported that the user did not name."""
    return not os.environ.get(AUTOLOAD_OFF)


def candidates(group: str) -> dict[str, list[Candidate]]:
    """Return the entry points of a group, by name; several if distributions clash."""
    found: dict[str, list[Candidate]] = {}
    for entry in importlib.metadata.entry_points(group=group):
        # A distribution that pip left half removed has no name.
        named = entry.dist if entry.dist and entry.dist.name else None
        origin = (named.name, named.version) if named else ("unknown",)
        candidate = Candidate(entry, *origin)
        known = found.setdefault(entry.name, [])
        # One distribution seen twice on sys.path (an editable install) does not clash.
        if candidate.title not in [other.title for other in known]:
            known.append(candidate)
    return found


def the_only(name: str, known: Mapping[str, list[Candidate]]) -> Candidate:
    """Return the one candidate of a name that has at least one; refuse several."""
    if len(known[name]) > 1:
        owners = " and ".join(sorted(candidate.distribution for candidate in known[name]))
        raise PluginError(name, f"is offered by {owners}", "uninstall one of them")
    return known[name][0]


def check_installed(group: str, name: str, *builtin: str) -> None:
    """Raise a PluginError if nothing has the name, without importing anything."""
    found = candidates(group)
    if name not in (*found, *builtin):
        known, extra = ", ".join(sorted((*found, *builtin))), EXTRAS[group].get(name)
        installed = f"installed are {known}" if known else "none is installed"
        cure = install_hint(f"etdev-{extra}") if extra else installed
        raise PluginError(name, "not installed", cure)


def load(group: str, name: str, fault: Callable[[Any], str], *builtin: str) -> Any:
    """Import the command, runner or view of a name, in which `fault` finds no fault."""
    check_installed(group, name, *(other for other in builtin if other != name))
    candidate = the_only(name, candidates(group))
    value = candidate.imported()
    if problem := fault(value):
        raise PluginError(candidate.title, f"{candidate.entry.value} {problem}", "uninstall it")
    return value
