"""Suggestions for names of plugins that are misspelt or not installed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache

from etdev.errors import PluginError
from etdev.registry.registry import Registry, default_path, load


@cache
def own_distributions() -> dict[str, str]:
    """Return the distributions of etdev's own plugins, by plugin: those that its registry lists.

    No other name may be suggested to pip: anyone can upload a distribution called etdev-something.
    """
    return {name: f"etdev-{name}" for name in load(default_path()).names}


def not_installed(name: str, registry: Registry, installed: Iterable[str]) -> PluginError:
    """Return the error for a plugin that no installed distribution offers.

    Args:
        name: Its name.
        registry: May list it; then the text has the line.
        installed: Names of those that are installed.
    """
    known = sorted(installed)
    place = registry.place("plugins", name) if name in registry.names else ""
    what = f"not installed, but listed in {place}" if place else "not installed"
    others = f"installed are {', '.join(known)}" if known else "none is installed"
    own = own_distributions()
    cure = f"pip install {own[name]}" if name in own else ""
    cure = cure or close_to(name, dict.fromkeys([*known, *registry.names, *own]))
    return PluginError(name, what, f"{cure} ({others})" if cure else others)


def close_to(name: str, known: Iterable[str]) -> str:
    """Return `did you mean cpu?` for a name that is nearly known, else an empty text."""
    close = difflib.get_close_matches(name, [other for other in known if other != name], 1)
    return f"did you mean {close[0]}?" if close else ""
