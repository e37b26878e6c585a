"""Entry points by which installed distributions add plugins, commands and views to etdev."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

from etdev.errors import PluginError, first_line

COMMANDS, VIEWS = "etdev.commands", "etdev.views"
# What etdev's own distributions add, and the extra of etdev that installs each. No other name may
# be suggested to pip: anyone can upload a distribution called etdev-something.
EXTRAS = {COMMANDS: {"tune": "tune"}, VIEWS: {"html": "page"}}
# Set in the environment, only what is named is imported.
AUTOLOAD_OFF = "ETDEV_DISABLE_PLUGIN_AUTOLOAD"
_UNKNOWN = "unknown"


@frozen
class Offer:
    """An entry point with the distribution that has it; nothing of it is imported yet.

    Args:
        entry: Name, module and object.
        distribution: Its name as pip knows it; the package's name if no distribution has it.
        version: Version of that distribution.
    """

    entry: EntryPoint
    distribution: str
    version: str = ""

    @property
    def title(self) -> str:
        """Name and distribution, for messages: `trt (etdev-trt 0.1.0)`."""
        return f"{self.entry.name} ({f'{self.distribution} {self.version}'.strip()})"

    def imported(self, fault: Callable[[Any], str]) -> Any:
        """Import the object of a command or a view.

        Args:
            fault: Says what is wrong with an object of another kind; empty if nothing is.

        Raises:
            PluginError: It can't be imported, or is of another kind.
        """
        if not EntryPoint.pattern.match(self.entry.value):
            what = f"has the entry point {self.entry.value!r}, which can't be read"
            raise PluginError(self.title, what, "write package.module:object")
        try:
            value = self.entry.load()
        except KeyboardInterrupt:
            raise
        # A module that calls sys.exit would end `etdev --help` silently.
        except BaseException as error:
            what = f"import failed with {first_line(error)}"
            raise PluginError(self.title, what, "reinstall or uninstall it") from error
        if problem := fault(value):
            raise PluginError(self.title, f"{self.entry.value} {problem}", "uninstall it")
        return value


def autoload() -> bool:
    """Return True if what nobody named may be imported, too."""
    return not os.environ.get(AUTOLOAD_OFF)


def offers(group: str) -> dict[str, list[Offer]]:
    """Return the entry points of a group, by name; several if distributions clash."""
    found: dict[str, list[Offer]] = {}
    for entry in importlib.metadata.entry_points(group=group):
        offer = Offer(entry, _UNKNOWN)
        if entry.dist:
            # What pip left half removed has no name.
            name = entry.dist.name or _UNKNOWN
            offer = Offer(entry, name, entry.dist.version if entry.dist.name else "")
        known = found.setdefault(entry.name, [])
        # One distribution seen twice on sys.path (an editable install) does not clash.
        if offer.title not in [other.title for other in known]:
            known.append(offer)
    return found


def load(group: str, name: str, fault: Callable[[Any], str]) -> Any:
    """Import the command or the view of a name.

    Args:
        group: `COMMANDS` or `VIEWS`.
        name: Name of the entry point.
        fault: As for `Offer.imported`.

    Raises:
        PluginError: No distribution offers it, several do, or as `Offer.imported`.
    """
    found = offers(group)
    known = found.get(name, ())
    if not known:
        installed = f"installed are {', '.join(sorted(found))}" if found else "none is installed"
        extra = EXTRAS[group].get(name)
        cure = f"pip install 'etdev[{extra}]'" if extra else installed
        raise PluginError(name, "not installed", cure)
    if len(known) > 1:
        owners = " and ".join(sorted(offer.distribution for offer in known))
        raise PluginError(name, f"is offered by {owners}", "uninstall one of them")
    return known[0].imported(fault)
