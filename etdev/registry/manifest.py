"""The manifest of a plugin: a TOML file in its package, read without importing the plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import frozen
from packaging.requirements import InvalidRequirement, Requirement

from etdev.errors import PluginError
from etdev.registry.registry import read_toml
from etdev.schema.structuring import CONVERTER, STRICT

FILE_NAME = "etdev-plugin.toml"


def _requirement(text: Any, _: object) -> Requirement:
    try:
        return Requirement(text)
    except (InvalidRequirement, TypeError) as error:
        raise PluginError("", f"is {text!r}", 'write it as pip does: "vendorcc>=3"') from error


for _converter in (STRICT, CONVERTER):
    _converter.register_structure_hook(Requirement, _requirement)
    _converter.register_unstructure_hook(Requirement, str)


@frozen
class Manifest:
    """Statements of a plugin about itself, in its manifest.

    Args:
        etdev_api: The version of the hooks that it was written for, or the first and the last one.
        backends: Names of the ExecuTorch backends that it claims nodes for.
        devices: Types of the devices that these run on.
        hooks: The hooks that it has.
        runtime: The library with the half of the backend that ExecuTorch's runtime loads.
        requires: Versions of other distributions without which it can't be used here, as pip
            writes them. Those that pip installs with the plugin need not be among them.
    """

    etdev_api: tuple[int, ...]
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    runtime: str = ""
    requires: tuple[Requirement, ...] = ()

    def unmet(self) -> Iterator[str]:
        """Yield the requirements that this environment doesn't meet, in words."""
        for need in self.requires:
            try:
                found = version(need.name)
            except PackageNotFoundError:
                yield f"it needs {need}, which is not installed"
                continue
            if not need.specifier.contains(found, prereleases=True):
                yield f"it needs {need}, and {found} is installed"


def manifest_in(target: str) -> Manifest | None:
    """Read the manifest in the package of an entry point, `module:name`; None without one.

    Raises:
        PluginError: It can't be read, or has a key or a value that makes no sense.
    """
    try:
        spec = find_spec(re.split("[:.]", target)[0])
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations if spec else None) or ():
        file = Path(folder, FILE_NAME)
        if file.is_file():
            return read_toml(file.read_text(encoding="utf-8"), file, Manifest, PluginError)
    return None
