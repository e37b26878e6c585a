"""Lowerers made of the values of the lowering options, which are checked before torch is there."""

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


def check(
    text: str | None,
    plugins: Sequence[str],
    devices: Sequence[str],
    pins: Sequence[str],
    strict: bool | None,
    registry: Path | None,
    **_: object,
) -> None:
    """Check a SOURCE and the values of the lowering options as far as that goes without torch.

    A misspelt name is then told at once, not after seconds of importing.

    Raises:
        EtdevError: As `lowerer`, or the file of the source does not exist.
    """
    from etdev.planner.rules import Options, rules
    from etdev.registry.registry import load
    from etdev.registry.selection import names_of

    table = load(registry)
    names = names_of(table, list(plugins) or None)
    with warnings.catch_warnings():
        # The lowerer gives them again.
        warnings.simplefilter("ignore")
        options = Options(devices=_devices(devices), pins=_pins(pins), strict=strict)
        rules(table, names, options)
    if text is not None:
        check_source(text)


def check_source(text: str) -> None:
    """Refuse a SOURCE that names no model, or a file that does not exist.

    Raises:
        SourceError: It does.
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
    """Make a Lowerer of the values of the lowering options."""
    from etdev.lowerer import Lowerer

    return Lowerer(**arguments(**lowering), listener=say)


def arguments(
    plugins: Sequence[str],
    devices: Sequence[str],
    pins: Sequence[str],
    strict: bool | None,
    simplify: bool | None,
    cache: str | None,
    no_cache: bool,
    registry: Path | None,
    **compiling: Any,
) -> dict[str, Any]:
    """Arguments of Lowerer for the values of the lowering options."""
    if cache and no_cache:
        raise click.UsageError("give --cache or --no-cache, not both")
    return {
        "plugins": list(plugins) or None,
        "registry": registry,
        "devices": _devices(devices),
        "pins": _pins(pins),
        "strict": strict or None,
        "simplify": simplify,
        "cache": False if no_cache else cache,
        **compiling,
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
