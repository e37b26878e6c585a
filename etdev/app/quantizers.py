"""The quantisers that plugins name by the hook `quantizers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etdev.registry.calls import call
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry
from etdev.registry.selection import select


def quantizers(plugins: Iterable[Plugin | str]) -> dict[str, Callable[[], Any]]:
    """Return functions that make PT2E quantisers, by `plugin:name`.

    Args:
        plugins: Plugins of a `Lowerer`, or names of installed ones, which are loaded without the
            options of any registry.

    Raises:
        PluginError: A plugin isn't installed, or its hook fails or returns something else.

    Example:
        quantizers(["cpu"])["cpu:int8"]()
    """
    found: dict[str, Callable[[], Any]] = {}
    for one in plugins:
        loaded = select(Registry(portable=False), [one]) if isinstance(one, str) else [one]
        for plugin in loaded:
            named = call(plugin, "quantizers", Mapping, "return functions by name") or {}
            found |= {f"{plugin.name}:{name}": make for name, make in named.items()}
    return found
