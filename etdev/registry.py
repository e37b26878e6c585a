"""registry.toml: which plugins, in which order, with which options and devices."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from attrs import field, frozen

from etdev.device import Device, per_method
from etdev.errors import DeviceError, RegistryError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "registry.toml"
UNLISTED = ("first", "last", "ignore")
_TOP_KEYS = ("plugins", "trusted", "unlisted", "strict")
_PLUGIN_KEYS = ("optional", "device", "options", "partitioner")
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
    """

    name: str
    optional: bool = False
    devices: Mapping[str, Device] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    partitioner: str = ""


@frozen
class Registry:
    """A registry file, read and checked.

    Args:
        entries: Plugins in claim order.
        trusted: The only distributions whose plugins are imported; None trusts all.
        unlisted: Where installed plugins that the file doesn't list are asked: `first`, `last`,
            or `ignore` for not at all.
        strict: Refuse devices that a plugin had to assume.
        path: Where it was read from.
    """

    entries: tuple[PluginEntry, ...] = ()
    trusted: tuple[str, ...] | None = None
    unlisted: str = "ignore"
    strict: bool = False
    path: Path | None = None

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
    package = Path(__file__).parent
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
    reader = _Reader(text, path)
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
    )


def _entry(name: str, table: object, reader: _Reader) -> PluginEntry:
    where = ("plugins", name)
    if not isinstance(table, dict):
        reader.fail(".".join(where), f"is {table!r}, not a table", f"write [plugins.{name}]")
    reader.keys(table, _PLUGIN_KEYS, where)
    return PluginEntry(
        name=name,
        optional=reader.typed(table, "optional", bool, False, where),
        devices=_devices(table.get("device", {}), reader, where),
        options=reader.typed(table, "options", dict, {}, where),
        partitioner=_partitioner(table, reader, where),
    )


def _partitioner(table: Mapping[str, Any], reader: _Reader, where: tuple[str, ...]) -> str:
    value = reader.typed(table, "partitioner", str, "", where)
    if "partitioner" in table and not _OBJECT.fullmatch(value):
        key = ".".join((*where, "partitioner"))
        reader.fail(key, f"is {value!r}", 'write "package.module:Class"')
    return value  # type: ignore[no-any-return]


def _devices(value: object, reader: _Reader, where: tuple[str, ...]) -> dict[str, Device]:
    try:
        return per_method(value)
    except DeviceError as error:
        reader.fail(".".join((*where, "device")), error.what, error.cure)


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@frozen
class _Reader:
    """Complains about a key with its line, which the TOML parser does not keep."""

    text: str
    path: Path

    def keys(
        self, table: Mapping[str, Any], valid: tuple[str, ...], at: tuple[str, ...] = ()
    ) -> None:
        for key in table:
            if key not in valid:
                close = difflib.get_close_matches(key, valid, 1)
                cure = f"did you mean {close[0]}?" if close else f"valid are {', '.join(valid)}"
                self.fail(".".join((*at, key)), "is an unknown key", cure)

    def typed(
        self, table: Mapping[str, Any], key: str, kind: type, default: Any, at: tuple[str, ...] = ()
    ) -> Any:
        value = table.get(key, default)
        if value is not default and not isinstance(value, kind):
            names = {dict: "a table", list: "a list", bool: "true or false", str: "text"}
            self.fail(".".join((*at, key)), f"is {value!r}", f"it must be {names[kind]}")
        return value

    def fail(self, key: str, what: str, cure: str) -> NoReturn:
        line = self._line(key)
        where = f"{self.path}, line {line}" if line else str(self.path)
        raise RegistryError(where, f"{key} {what}", cure)

    def _line(self, key: str) -> int | None:
        """First line that sets a dotted key, as `a.b = …` or as `b = …` under `[a]`."""
        table: str = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
                table = header[1].replace('"', "")
                if table == key or table.startswith(key + "."):
                    return number
            elif setting := re.match(r"\s*([\w\"'.-]+)\s*=", line):
                name = re.sub(r"[\"']", "", setting[1])
                full = f"{table}.{name}" if table else name
                if full == key or full.startswith(key + "."):
                    return number
        # A key inside `{ ... }` is on the line of its table.
        parent = key.rpartition(".")[0]
        return self._line(parent) if parent else None
