"""The registry file: plugins in claim order, their options, devices and limits, pins, budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, asdict, field, fields, frozen

from etdev.errors import RegistryError
from etdev.registry.toml_reader import line_of, read_toml
from etdev.schema.budget import Budget
from etdev.schema.caching import CacheSettings
from etdev.schema.device import Device, per_method
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.structuring import CONVERTER, table

FILE_NAME = "registry.toml"
# Values of `on_failure`: a partition that can't be compiled is an error, or portable.
ERROR, FALLBACK = ON_FAILURE = ("error", "fallback")
_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@frozen
class PluginEntry:
    """The entry of one plugin in the registry.

    Args:
        name: Its entry-point name.
        optional: Left out silently if it is not installed.
        devices: Pinned device per method; the method `*` stands for all others.
        options: Handed to the plugin's class as keyword arguments.
        partitioner: Where to find an ExecuTorch Partitioner to adapt, `package.module:Class`; empty
            for a plugin that is installed.
        limits: How small its partitions may be, and how many.
    """

    name: str
    optional: bool = False
    devices: Mapping[str, Device] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    partitioner: str = ""
    limits: Limits = field(factory=Limits)


@frozen(kw_only=True)
class _Settings:
    """What a registry has besides plugins and pins."""

    trusted: tuple[str, ...] | None = None
    unlisted: Literal["first", "last", "ignore"] = "ignore"
    strict: bool = False
    budget: Budget | None = None
    cache: CacheSettings = field(factory=CacheSettings)
    on_failure: Literal["error", "fallback"] = "error"
    simplify: bool = True
    portable: bool = True


@frozen
class Registry(_Settings):
    """A registry file, read and checked.

    Args:
        entries: Plugins in claim order.
        trusted: The only distributions whose plugins are imported; None trusts all.
        unlisted: Where installed plugins that the file doesn't list are asked: `first`, `last`,
            or `ignore` for not at all.
        strict: Refuse devices that a plugin had to assume, and pins that aren't kept.
        simplify: Remove redundant work before plugins are asked.
        portable: Ask the built-in plugin of portable kernels, after all others.
        path: Where it was read from.
        pins: Nodes that only one plugin may have; the first pin that matches a node counts.
        budget: Limit of nodes that may fall back to portable kernels; None sets none.
        text: The text of the file, for the lines in messages.
        cache: Where compiled partitions are kept.
        on_failure: Treat a partition that can't be compiled as an `error`, or as a `fallback`.
    """

    entries: tuple[PluginEntry, ...] = ()
    path: Path | None = None
    pins: tuple[Pin, ...] = ()
    text: str = field(default="", eq=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Listed plugins in claim order."""
        return tuple(entry.name for entry in self.entries)

    def entry(self, name: str) -> PluginEntry:
        """Return the entry of a plugin; an empty one if it is not listed."""
        listed = {entry.name: entry for entry in self.entries}
        return listed.get(name) or PluginEntry(name, optional=True)

    def place(self, *keys: str) -> str:
        """Return the place that sets a key, as `registry.toml, line 3`; empty if none does."""
        line = line_of(self.text, ".".join(keys)) if self.text else None
        return f"{self.path}, line {line}" if line else ""

    def trusts(self, distribution: str) -> bool:
        """Return True if plugins of a distribution may be imported."""
        if self.trusted is None:
            return True
        return _normal(distribution) in {_normal(name) for name in self.trusted}


def default_path() -> Path:
    """Return the path of etdev's own registry: in the checkout, or inside the installed package."""
    package = Path(__file__).parents[1]
    shipped = package / FILE_NAME
    return shipped if shipped.exists() else package.parent / FILE_NAME


def find(path: str | Path | None = None) -> Path:
    """Return the file to read: the given one, else ./registry.toml, else etdev's own."""
    if path is not None:
        return Path(path)
    here = Path(FILE_NAME)
    return here if here.is_file() else default_path()


def load(path: str | Path | None = None) -> Registry:
    """Read a registry file; refuse a key or value that makes no sense, with its line."""
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


@cache
def own_distributions() -> dict[str, str]:
    """Return the distributions of etdev's own plugins, by plugin: those that its registry lists.

    No other name may be suggested to pip: anyone can upload a distribution called etdev-something.
    """
    return {name: f"etdev-{name}" for name in load(default_path()).names}


def parse(text: str, path: Path) -> Registry:
    """Make a Registry of the text of a registry file; `path` is for messages."""
    settings = asdict(read_toml(text, path, _File), recurse=False)
    entries = tuple(plugin.entry(name) for name, plugin in settings.pop("plugins").items())
    return Registry(entries, path=path, text=text, pins=settings.pop("pin"), **settings)


def _devices(value: object) -> dict[str, Device]:
    """Convert as `per_method` does, with the method in the path of a faulty device."""
    if not isinstance(value, Mapping):
        return per_method(value)
    devices: dict[str, Device] = CONVERTER.structure(value, dict[str, Device])
    return devices


def _check_partitioner(_: object, __: Attribute[str | None], value: object) -> None:
    if value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value)):
        raise RegistryError("", f"is {value!r}", 'write "package.module:Class"')


@frozen
class _PluginTable(Limits):
    """The table of a plugin, its fields named as the keys in the file, limits included."""

    optional: bool = False
    device: dict[str, Device] = field(factory=dict, converter=_devices)
    options: dict[str, Any] = field(factory=dict)
    partitioner: str | None = field(default=None, validator=_check_partitioner)

    def entry(self, name: str) -> PluginEntry:
        limits = Limits(**{limit.name: getattr(self, limit.name) for limit in fields(Limits)})
        found = self.partitioner or ""
        return PluginEntry(name, self.optional, self.device, self.options, found, limits)


@frozen
class _File(_Settings):
    """The whole file, its fields named as its keys."""

    plugins: dict[str, _PluginTable] = field(factory=dict)
    pin: tuple[Pin, ...] = ()


table(_PluginTable, "table", "write [plugins.NAME]")
table(_File, "table", "write [plugins.NAME]")


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
