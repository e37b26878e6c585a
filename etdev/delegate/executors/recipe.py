"""Recipes: how a plugin is made again in another process."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import attrs

from etdev.delegate.executors.plain import Stays, plain, restored
from etdev.errors import EtdevError
from etdev.registry.discovery import GROUP, Origin
from etdev.registry.plugin import Plugin


def recipe(plugin: Plugin) -> dict[str, Any]:
    """How to make a plugin again, as JSON has it.

    An installed plugin is made from its entry point and options, one that was given as an object
    from its class and the values of its attrs fields.

    Raises:
        Stays: It can't be made again by importing it.
    """
    about = {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
    }
    try:
        if plugin.made is not None:
            entry, adapted, options = plugin.made
            return {**about, "entry": entry, "adapted": adapted, "options": plain(dict(options))}
        return {**about, **_object(plugin.implementation)}
    except Stays as error:
        raise Stays(f"plugin {plugin.name}: {error}") from None


def _object(implementation: Any) -> dict[str, Any]:
    kind = type(implementation)
    if kind.__module__ == "__main__" or "<" in kind.__qualname__:
        raise Stays(f"{kind.__qualname__} can't be imported")
    if not attrs.has(kind):
        own = getattr(implementation, "__dict__", None)
        if own != {} or kind.__init__ is not object.__init__:
            raise Stays(f"{kind.__qualname__} is not an attrs class, so its options aren't known")
        options: dict[str, Any] = {}
    else:
        fields = [item for item in attrs.fields(kind) if item.init]
        options = {item.alias: getattr(implementation, item.name) for item in fields}
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "options": plain(options)}


def follow(about: dict[str, Any]) -> Plugin:
    """Make a plugin again.

    Raises:
        Stays: That is not possible here.
    """
    options = restored(about["options"])
    try:
        if "entry" in about:
            entry = EntryPoint(about["name"], about["entry"], GROUP)
            known = Origin(entry, about["distribution"], about["version"], about["adapted"])
            return known.load(options)
        implementation = named(about["class"])(**options)
        return Plugin(about["name"], implementation, about["distribution"], about["version"])
    except (EtdevError, ImportError, AttributeError, TypeError) as error:
        raise Stays(f"plugin {about['name']} can't be made there: {error}") from error


def named(place: str) -> Any:
    """The object at a place, `package.module:Name.inner`.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such object.
    """
    module, _, name = place.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value
