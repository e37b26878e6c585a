"""Text of a registry file for a `Registry`."""

from __future__ import annotations

from collections.abc import Sequence

import tomlkit

from etdev import Registry
from etdev.app import Setup
from etdev.errors import RegistryError


def toml_of(registry: Registry, comment: Sequence[str] = ()) -> str:
    """Return the text that `parse` reads as this registry, without its cache, under a comment.

    Raises:
        RegistryError: An option has a value that TOML can't write.
    """
    try:
        text = tomlkit.dumps(Setup.tables(registry))
    except ValueError as error:
        what = f"{error} and can't be written as TOML"
        raise RegistryError("registry", what, "give text, numbers, lists or tables") from error
    return "".join([*(f"# {line}".rstrip() + "\n" for line in comment), text])
