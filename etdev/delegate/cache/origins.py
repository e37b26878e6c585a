"""Origins: which version of which distribution some code is."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from blake3 import blake3


def origin(function: Callable[..., Any]) -> str | None:
    """What the code of a function is: `executorch 1.5.1`; None where that can't be known.

    A file that its distribution did not record has no version, whatever the distribution says:
    it is editable or was shadowed.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else _origin(os.path.realpath(code.co_filename))


def folder_digest(package: str) -> str | None:
    """Digest of the Python files of a loaded package, for one that is installed as editable."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if not file or Path(file).name != "__init__.py":
        return None
    digest = blake3()
    folder = Path(file).parent
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of some distributions and of what they require, by name."""
    known: dict[str, str] = {}
    for name in sorted(set(distributions)):
        known.update(_versions(name))
    return known


@functools.cache
def _versions(name: str) -> dict[str, str]:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return {name: "missing"}
    known = {name: distribution.version}
    for requirement in distribution.requires or ():
        # Extras too: what is installed of them may be used.
        if match := re.match(r"[A-Za-z0-9][\w.-]*", requirement):
            try:
                known[match[0].lower()] = metadata.version(match[0])
            except metadata.PackageNotFoundError:
                continue
    return known


@functools.cache
def _origin(file: str) -> str | None:
    for name in _candidates(file):
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        root = os.path.realpath(str(distribution.locate_file("")))
        if os.path.relpath(file, root) in _recorded(name):
            return f"{name} {distribution.version}"
    return None


def _candidates(file: str) -> Iterator[str]:
    """Distributions that may have installed a file."""
    for entry in sys.path:
        folder = os.path.realpath(entry or os.curdir)
        if file.startswith(folder + os.sep):
            top = os.path.relpath(file, folder).split(os.sep)[0].removesuffix(".py")
            # Most are called as their package is; to ask for all of them takes a while.
            yield top
            yield from _packages().get(top, ())


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@functools.cache
def _recorded(name: str) -> frozenset[str]:
    return frozenset(str(file) for file in metadata.files(name) or ())
