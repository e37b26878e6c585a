"""registry.toml: which plugins, in which order, with which options, devices, pins and limits."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import field, frozen

from etdev.errors import RegistryError
from etdev.registry.toml_reader import TableReader
from etdev.schema import budget, limits, pins
from etdev.schema.budget import Budget
from etdev.schema.device import Device, per_method
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "registry.toml"
UNLISTED = ("first", "last", "ignore")
_TOP_KEYS = ("plugins", "trusted", "unlisted", "strict", "pin", "budget")
_PLUGIN_KEYS = ("optional", "device", *limits.KEYS, "options", "partitioner")
_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@frozen
class PluginEntry:
    """What the registry says of one plugin.

    Args:
        name: Its entry-point name.
        optional: Left out without a word if it is not installed.
        devices: Pinned device per method; the method `*` stands for all others.
        options: Handed to the plugin's class as keyword arguments.
        partitioner: Where to find an ExecuTorch Partitioner to adapt, `package.module:Class`; empty
            for a plugin that is installed.
        limits: What its partitions must come up to.
    """

    name: str
    optional: bool = False
    devices: Mapping[str, Device] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    partitioner: str = ""
    limits: Limits = field(factory=Limits)


@frozen
class Registry:
    """A registry file, read and checked.

    Args:
        entries: Plugins in claim order.
        trusted: The only distributions whose plugins are imported; None trusts all.
        unlisted: Where installed plugins that the file doesn't list are asked: `first`, `last`,
            or `ignore` for not at all.
        strict: Refuse devices that a plugin had to assume, and pins that aren't kept.
        path: Where it was read from.
        pins: Nodes that one plugin may have and no other; the first that matches a node counts.
        budget: What may fall back to portable kernels; None is no limit.
    """

    entries: tuple[PluginEntry, ...] = ()
    trusted: tuple[str, ...] | None = None
    unlisted: str = "ignore"
    strict: bool = False
    path: Path | None = None
    pins: tuple[Pin, ...] = ()
    budget: Budget | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Listed plugins in claim order."""
        return tuple(entry.name for entry in self.entries)

    def entry(self, name: str) -> PluginEntry:
        """What it says of a plugin; an empty entry if it is not listed."""
        found = [entry for entry in self.entries if entry.name == name]
        return found[0] if found else PluginEntry(name, optional=True)

    def trusts(self, distribution: str) -> bool:
        """Whether plugins of a distribution may be imported."""
        if self.trusted is None:
            return True
        return _normal(distribution) in {_normal(name) for name in self.trusted}


def default_path() -> Path:
    """The registry that etdev ships: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parents[1]
    shipped = package / FILE_NAME
    return shipped if shipped.exists() else package.parent / FILE_NAME


def find(path: str | Path | None = None) -> Path:
    """The file to read: the one given, else ./registry.toml, else the one that etdev ships."""
    if path is not None:
        return Path(path)
    own = Path(FILE_NAME)
    return own if own.is_file() else default_path()


def load(path: str | Path | None = None) -> Registry:
    """Read a registry file.

    Raises:
        RegistryError: It is missing, no TOML, or has a key or value that makes no sense; the text
            names the line and the key.
    """
    file = find(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise RegistryError(
            str(file), f"cannot be read ({error.strerror})", "give the path of a registry.toml"
        ) from error
    except UnicodeDecodeError as error:
        raise RegistryError(str(file), "is not UTF-8 text", "save it as UTF-8") from error
    return parse(text, file)


def parse(text: str, path: Path) -> Registry:
    """Check the text of a registry file; `path` is for messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(str(path), f"is not valid TOML: {error}", "mend that line") from error
    reader = TableReader(text, path)
    reader.keys(data, _TOP_KEYS)
    unlisted = data.get("unlisted", "ignore")
    if unlisted not in UNLISTED:
        reader.fail("unlisted", f"is {unlisted!r}", f"valid are {', '.join(UNLISTED)}")
    plugins = reader.typed(data, "plugins", dict, {})
    trusted = reader.typed(data, "trusted", list, None)
    if trusted is not None and not all(isinstance(name, str) for name in trusted):
        reader.fail("trusted", "holds something that is no name", 'write ["etdev-cpu"]')
    return Registry(
        entries=tuple(_entry(name, table, reader) for name, table in plugins.items()),
        trusted=None if trusted is None else tuple(trusted),
        unlisted=unlisted,
        strict=reader.typed(data, "strict", bool, False),
        path=path,
        pins=_pins(data, reader),
        budget=_budget(data, reader),
    )


def _entry(name: str, table: object, reader: TableReader) -> PluginEntry:
    where = ("plugins", name)
    here = ".".join(where)
    if not isinstance(table, dict):
        reader.fail(here, f"is {table!r}, not a table", f"write [plugins.{name}]")
    reader.keys(table, _PLUGIN_KEYS, where)
    device = table.get("device", {})
    least = {key: table[key] for key in limits.KEYS if key in table}
    return PluginEntry(
        name=name,
        optional=reader.typed(table, "optional", bool, False, where),
        devices=reader.checked(f"{here}.device", (), lambda: per_method(device)),
        options=reader.typed(table, "options", dict, {}, where),
        partitioner=_partitioner(table, reader, where),
        limits=reader.checked(here, limits.KEYS, lambda: Limits(**least)),
    )


def _partitioner(table: Mapping[str, Any], reader: TableReader, where: tuple[str, ...]) -> str:
    value = reader.typed(table, "partitioner", str, "", where)
    if "partitioner" in table and not _OBJECT.fullmatch(value):
        key = ".".join((*where, "partitioner"))
        reader.fail(key, f"is {value!r}", 'write "package.module:Class"')
    return value  # type: ignore[no-any-return]


def _pins(data: Mapping[str, Any], reader: TableReader) -> tuple[Pin, ...]:
    found = []
    for index, table in enumerate(reader.typed(data, "pin", list, [])):
        where = f"pin[{index}]"
        if isinstance(table, dict):
            reader.keys(table, pins.KEYS, (where,))
        found.append(reader.checked(where, pins.KEYS, partial(Pin.of, table)))
    return tuple(found)


def _budget(data: Mapping[str, Any], reader: TableReader) -> Budget | None:
    table = reader.typed(data, "budget", dict, None)
    if table is None:
        return None
    reader.keys(table, budget.KEYS, ("budget",))
    return reader.checked("budget", budget.KEYS, lambda: Budget.of(table))


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
