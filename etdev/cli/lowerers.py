"""Lowerers made from the lowering options, which are checked before torch is imported."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.errors import PinError, SourceError
from etdev.schema.device import ANY_METHOD
from etdev.schema.pins import Pin

if TYPE_CHECKING:
    from etdev.cli.progress import Say
    from etdev.lowerer import Lowerer

FORMS = "write file.pt2, package.module:function or file.py:function"


def check(source: str | None, **lowering: Any) -> None:
    """Check a SOURCE and the lowering options as far as possible without torch.

    A misspelt name is then reported at once, and not after seconds of importing.

    Raises:
        EtdevError: A plugin, device, pin or the registry is wrong, or the source does not exist.
    """
    from etdev.planner.rules import Options, rules
    from etdev.registry.registry import load
    from etdev.registry.selection import names_of

    given = arguments(**lowering)
    table = load(given["registry"])
    with warnings.catch_warnings():
        # The lowerer warns again.
        warnings.simplefilter("ignore")
        names = names_of(table, given["plugins"])
        chosen = {name: given[name] for name in ("devices", "pins", "strict")}
        rules(table, names, Options(**chosen))
    if source is not None:
        check_source(source)


def check_source(text: str) -> None:
    """Check that a SOURCE names a model in a file that exists.

    Raises:
        SourceError: It names no model, or the file does not exist.
    """
    place, colon, name = text.rpartition(":")
    if text.endswith(".pt2"):
        if not Path(text).is_file():
            raise SourceError(text, "does not exist", "give the path of a .pt2 file")
        return
    if not colon or not place or not name:
        raise SourceError(text, "does not name a model", FORMS)
    if place.endswith(".py") and not Path(place).is_file():
        raise SourceError(text, f"there is no file {place!r}", FORMS)


def lowerer(say: Say, **lowering: Any) -> Lowerer:
    """Return a Lowerer for the lowering options."""
    from etdev.lowerer import Lowerer

    return Lowerer(**arguments(**lowering), listener=say)


def arguments(
    plugins: Sequence[str],
    devices: Sequence[str],
    pins: Sequence[str],
    strict: bool | None,
    cache: str | None,
    no_cache: bool,
    **others: Any,
) -> dict[str, Any]:
    """Return the arguments of Lowerer for the lowering options."""
    if cache and no_cache:
        raise click.UsageError("give --cache or --no-cache, not both")
    return {
        "plugins": list(plugins) or None,
        "devices": _devices(devices),
        "pins": _pins(pins),
        "strict": strict or None,
        "cache": False if no_cache else cache,
        **others,
    }


def _devices(values: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read `["trt.forward=cuda:1"]` as devices per plugin and method."""
    devices: dict[str, dict[str, str]] = {}
    for value in values:
        where, equals, device = value.partition("=")
        plugin, _, method = where.partition(".")
        if not equals or not plugin:
            raise click.BadParameter(f"{value!r} is not PLUGIN=DEVICE", param_hint="--device")
        devices.setdefault(plugin, {})[method or ANY_METHOD] = device
    return devices


def _pins(values: Sequence[str]) -> list[Pin]:
    """Read `["op=aten.add.*:plugin=cpu"]` as pins."""
    try:
        return [Pin.parse(value) for value in values]
    except PinError as error:
        raise click.BadParameter(f"{error.what}; {error.cure}", param_hint="--pin") from None
