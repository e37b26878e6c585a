"""registry.toml: the plugins in claim order, their options, devices and limits, pins, budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Attribute, field, frozen

from etdev.errors import RegistryError
from etdev.registry.toml_reader import line_of, read_toml
from etdev.schema.budget import Budget
from etdev.schema.caching import CacheSettings
from etdev.schema.device import Device, per_method
from etdev.schema.limits import Limits
from etdev.schema.pins import Pin
from etdev.schema.structuring import CONVERTER, table

FILE_NAME = "registry.toml"
# What a partition that can't be compiled is.
ERROR, FALLBACK = ON_FAILURE = ("error", "fallback")
UNLISTED = ("first", "last", "ignore")
_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@frozen
class PluginEntry:
    """What the registry says about one plugin.

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


@frozen
class Registry:
    """A registry file, read and checked.

    Args:
        entries: Plugins in claim order.
        trusted: The only distributions whose plugins are imported; None trusts all.
        unlisted: Where installed plugins that the file doesn't list are asked: `first`, `last`,
            or `ignore` for not at all.
        strict: Refuse devices that a plugin had to assume, and pins that aren't kept.
        simplify: Take out what computes nothing new before plugins are asked.
        portable: Ask the built-in plugin of portable kernels, after all others.
        path: Where it was read from.
        pins: Nodes that only one plugin may have; the first pin that matches a node counts.
        budget: What may fall back to portable kernels; None sets no limit.
        text: The text of the file, for the lines in messages.
        cache: Where compiled partitions are kept.
        on_failure: What a partition that can't be compiled is: an `error`, or `fallback`.
    """

    entries: tuple[PluginEntry, ...] = ()
    trusted: tuple[str, ...] | None = None
    unlisted: str = "ignore"
    strict: bool = False
    path: Path | None = None
    pins: tuple[Pin, ...] = ()
    budget: Budget | None = None
    text: str = field(default="", eq=False, repr=False)
    cache: CacheSettings = field(factory=CacheSettings)
    on_failure: str = ERROR
    simplify: bool = True
    portable: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Listed plugins in claim order."""
        return tuple(entry.name for entry in self.entries)

    def entry(self, name: str) -> PluginEntry:
        """What it says about a plugin; an empty entry if it is not listed."""
        listed = {entry.name: entry for entry in self.entries}
        return listed.get(name) or PluginEntry(name, optional=True)

    def place(self, *keys: str) -> str:
        """Where the file sets a key, as `registry.toml, line 3`; empty if it doesn't."""
        line = line_of(self.text, ".".join(keys)) if self.text else None
        return f"{self.path}, line {line}" if line else ""

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
    here = Path(FILE_NAME)
    return here if here.is_file() else default_path()


def load(path: str | Path | None = None) -> Registry:
    """Read a registry file.

    Raises:
        RegistryError: It is missing, not TOML, or has a key or value that makes no sense; the text
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
    """Make a Registry of the text of a registry file; `path` is for messages."""
    file = read_toml(text, path, _File)
    return Registry(
        entries=tuple(table.entry(name) for name, table in file.plugins.items()),
        trusted=file.trusted,
        unlisted=file.unlisted,
        strict=file.strict,
        simplify=file.simplify,
        portable=file.portable,
        path=path,
        pins=file.pin,
        budget=file.budget,
        text=text,
        cache=file.cache,
        on_failure=file.on_failure,
    )


def _devices(value: object) -> dict[str, Device]:
    """As `per_method`, with the method in the path of a faulty device."""
    if not isinstance(value, Mapping):
        return per_method(value)
    devices: dict[str, Device] = CONVERTER.structure(value, dict[str, Device])
    return devices


def _check_partitioner(_: object, __: Attribute[str | None], value: object) -> None:
    if value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value)):
        raise RegistryError("", f"is {value!r}", 'write "package.module:Class"')


def _check_unlisted(_: object, __: Attribute[str], value: object) -> None:
    if value not in UNLISTED:
        raise RegistryError("", f"is {value!r}", f"valid are {', '.join(UNLISTED)}")


def _check_failure(_: object, __: Attribute[str], value: object) -> None:
    if value not in ON_FAILURE:
        raise RegistryError("", f"is {value!r}", f"valid are {', '.join(ON_FAILURE)}")


@frozen
class _PluginTable(Limits):
    """The table of a plugin, its keys named as in the file; limits are keys like the others."""

    optional: bool = False
    device: dict[str, Device] = field(factory=dict, converter=_devices)
    options: dict[str, Any] = field(factory=dict)
    partitioner: str | None = field(default=None, validator=_check_partitioner)

    def entry(self, name: str) -> PluginEntry:
        return PluginEntry(
            name=name,
            optional=self.optional,
            devices=self.device,
            options=self.options,
            partitioner=self.partitioner or "",
            limits=Limits(
                self.min_nodes,
                self.max_partitions,
                self.hook_timeout_s,
                self.compile_timeout_s,
            ),
        )


@frozen
class _File:
    """The file, its keys named as there."""

    plugins: dict[str, _PluginTable] = field(factory=dict)
    trusted: tuple[str, ...] | None = None
    unlisted: str = field(default="ignore", validator=_check_unlisted)
    strict: bool = False
    pin: tuple[Pin, ...] = ()
    budget: Budget | None = None
    cache: CacheSettings = field(factory=CacheSettings)
    on_failure: str = field(default=ERROR, validator=_check_failure)
    simplify: bool = True
    portable: bool = True


table(_PluginTable, "table", "write [plugins.NAME]")
table(_File, "table", "write [plugins.NAME]")


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
