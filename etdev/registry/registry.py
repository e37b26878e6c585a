"""The registry file: plugins in claim order, their options, devices and limits, pins, budget."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from attrs import Attribute, field, fields, frozen, make_class
from packaging.utils import canonicalize_name

from etdev.errors import EtdevError, RegistryError, shown
from etdev.schema.converters import refusing
from etdev.schema.device import Device, per_method
from etdev.schema.limits import Limits
from etdev.schema.options import Devices, Options, Surface, settings_on
from etdev.schema.structuring import REFUSALS, STRICT, problems, structured

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_Kind = TypeVar("_Kind")
FILE_NAME = "registry.toml"
# The file of a Python project, whose table of etdev is a registry, too.
PROJECT, TABLE = "pyproject.toml", "tool.etdev"
_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@frozen
class PluginEntry:
    """The entry of one plugin in the registry."""

    name: str
    # Left out silently if it is not installed.
    optional: bool = False
    # By method; `*` stands for all other methods.
    devices: Mapping[str, Device] = field(factory=dict)
    # Handed to the plugin's class as keyword arguments.
    options: Mapping[str, Any] = field(factory=dict)
    # An ExecuTorch Partitioner to adapt, `package.module:Class`; empty for an installed plugin.
    partitioner: str = ""
    limits: Limits = field(factory=Limits)


@refusing(RegistryError, "registry")
@frozen
class Registry(Options):
    """A registry file, read and checked.

    Args:
        entries: Plugins in claim order.
        path: Where it was read from.
    """

    entries: tuple[PluginEntry, ...] = ()
    path: Path | None = None
    # The file has them in the tables of plugins.
    devices: Devices = field(init=False)
    limits: Mapping[str, Limits] = field(init=False)

    @devices.default
    def _own_devices(self) -> Devices:
        return {entry.name: entry.devices for entry in self.entries}

    @limits.default
    def _own_limits(self) -> Mapping[str, Limits]:
        return {entry.name: entry.limits for entry in self.entries}

    @property
    def names(self) -> tuple[str, ...]:
        """Listed plugins in claim order."""
        return tuple(entry.name for entry in self.entries)

    def entry(self, name: str) -> PluginEntry:
        """Return the entry of a plugin; an empty one if it is not listed."""
        listed = {entry.name: entry for entry in self.entries}
        return listed.get(name) or PluginEntry(name, optional=True)

    def trusts(self, distribution: str) -> bool:
        """Return True if plugins of a distribution may be imported."""
        if self.trusted is None:
            return True
        return canonicalize_name(distribution) in map(canonicalize_name, self.trusted)


def default_path() -> Path:
    """Return the path of etdev's own registry: in the checkout, or inside the installed package."""
    package = Path(__file__).parents[1]
    shipped = package / FILE_NAME
    return shipped if shipped.exists() else package.parent / FILE_NAME


def find(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the file to read: the given one, else one in the working directory, else etdev's own.

    There ./registry.toml precedes a ./pyproject.toml that has a table `[tool.etdev]`.
    """
    if path is not None:
        return Path(path)
    here, project = Path(FILE_NAME), Path(PROJECT)
    if here.is_file():
        return here
    with suppress(OSError, UnicodeDecodeError):
        text = project.read_text("utf-8")
        try:
            listed = "etdev" in tomllib.loads(text).get("tool", {})
        except (ValueError, RecursionError, TypeError):
            # `load` says what is wrong with it.
            listed = f"[{TABLE}" in text
        if listed:
            return project
    return default_path()


def load(path: str | os.PathLike[str] | None = None) -> Registry:
    """Read a registry file; refuse a key or value that makes no sense."""
    file = find(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise RegistryError(str(file), what, "give the path of a registry.toml") from error
    except UnicodeDecodeError as error:
        raise RegistryError(str(file), "is not UTF-8 text", "save it as UTF-8") from error
    return parse(text, file)


def registry_of(value: object) -> Registry:
    """Return a Registry: itself, of its tables, of the file at a path, or of the one `find` finds.

    The last is for None.
    """
    if isinstance(value, Registry):
        return value
    if isinstance(value, Mapping):
        return _registry(structured(value, _File, "registry", RegistryError))
    if not isinstance(value, (str, os.PathLike, type(None))):
        cure = "give a Registry, its tables, or the path of a registry.toml"
        raise RegistryError("registry", f"is {shown(value)}", cure)
    return load(value)


@cache
def own_distributions() -> dict[str, str]:
    """Return the distributions of etdev's own plugins, by plugin: those that its registry lists.

    No other name may be suggested to pip: anyone can upload a distribution called etdev-something.
    """
    return {name: f"etdev-{name}" for name in load(default_path()).names}


def parse(text: str, path: Path) -> Registry:
    """Make a Registry of the text of a registry file; `path` is for messages."""
    return _registry(read_toml(text, path, _File), path)


def _registry(read: Any, path: Path | None = None) -> Registry:
    entries = tuple(plugin.entry(name) for name, plugin in read.plugins.items())
    settings = {
        own.name: getattr(read, own.metadata["key"] or own.name)
        for own in settings_on(Surface.REGISTRY)
    }
    return Registry(entries, path=path, **settings)


class _Devices(dict[str, Device]):
    """Devices by method, from a table of them or the device of all methods."""


STRICT.register_structure_hook(_Devices, lambda value, _: _Devices(per_method(value)))


def _check_partitioner(_: object, __: Attribute[str | None], value: object) -> None:
    if value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value)):
        raise RegistryError("", f"partitioner is {value!r}", 'write "package.module:Class"')


@frozen
class _PluginTable(Limits):
    """The table of a plugin, its fields named as the keys in the file, limits included."""

    optional: bool = False
    device: _Devices = field(factory=_Devices)
    options: dict[str, Any] = field(factory=dict)
    partitioner: str | None = field(default=None, validator=_check_partitioner)

    def entry(self, name: str) -> PluginEntry:
        limits = Limits(**{limit.name: getattr(self, limit.name) for limit in fields(Limits)})
        found = self.partitioner or ""
        return PluginEntry(name, self.optional, self.device, self.options, found, limits)


# The whole file, its fields named as its keys.
_File: Any = make_class(
    "_File",
    {
        "plugins": field(factory=dict, type=dict[str, _PluginTable]),
        **{
            own.metadata["key"] or own.name: field(default=own.default, type=own.type)
            for own in settings_on(Surface.REGISTRY)
        },
    },
    frozen=True,
)


def read_toml(
    text: str, path: Path, kind: type[_Kind], error: type[EtdevError] = RegistryError
) -> _Kind:
    """Make a value of a class of a TOML text, or raise an error with the key of each mistake."""
    try:
        data = tomllib.loads(text)
    # Also raised by numbers with thousands of digits, and by thousands of nested brackets.
    except (ValueError, RecursionError) as cause:
        what = f"is not valid TOML: {cause}"
        raise error(str(path), what, "correct that line") from cause
    table = _table(data, path)
    try:
        return STRICT.structure(table, kind)
    except REFUSALS as refusal:
        faults = list(problems(refusal))
    if len(faults) == 1:
        raise error(str(path), f"{faults[0].who} {faults[0].what}", faults[0].cure)
    lines = [f"\n  {fault.who} {fault.what}; {fault.cure}" for fault in faults]
    raise error(str(path), f"has {len(lines)} mistakes{''.join(lines)}")


def _table(data: Any, path: Path) -> Any:
    """Return the registry in a TOML file: all of it, or the table of etdev in a pyproject.toml."""
    if path.name != PROJECT:
        return data
    tool = data.get("tool")
    if not isinstance(tool, Mapping) or not isinstance(tool.get("etdev"), Mapping):
        what = f"has no table [{TABLE}]"
        raise RegistryError(str(path), what, "add it, or give the path of a registry.toml")
    return tool["etdev"]
