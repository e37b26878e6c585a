"""Origins: which version of which distribution some code is."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from blake3 import blake3
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from etdev.delegate.cache.faithful import Unhashable

_BEGUN = time.time()
_HOST = ("etdev", "executorch", "torch")


def origin(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """What the code of a function is: `executorch 1.5.1`; None where that can't be known.

    What wraps it is told, too. The version of an editable distribution says nothing of its files,
    whose digest is added. A file of any other that the distribution did not record was put in its
    place.

    Raises:
        Unhashable: The files of an editable distribution are not those that were imported.
    """
    known = list[str]()
    each: Any = function
    while each is not None:
        code = getattr(each, "__code__", None)
        if code is None:
            return None
        file = os.path.realpath(code.co_filename)
        if not _is_of_python(file):
            place = _origin(file)
            if place is None:
                return None
            known.append(place)
        each = getattr(each, "__wrapped__", None)
    return tuple(known) or None


def _is_of_python(file: str) -> bool:
    """Whether a file is of Python's own library, whose version is in the key."""
    folder = os.path.dirname(os.path.realpath(os.__file__))
    rest = os.path.relpath(file, folder)
    return not rest.startswith(os.pardir) and rest.split(os.sep)[0] != "site-packages"


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of some distributions, and of what they require unless they are the host's."""
    known: dict[str, str] = {}
    for name in sorted({*_HOST, *distributions}):
        known.update(_versions(canonicalize_name(name)))
    return known


@functools.cache
def _versions(name: str) -> dict[str, str]:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return {name: "missing"}
    known = {name: distribution.version}
    if name in ("etdev", "torch"):
        return known
    extras = ["", *(distribution.metadata.get_all("Provides-Extra") or ())]
    for requirement in map(Requirement, distribution.requires or ()):
        marker = requirement.marker
        # Extras too: what is installed of them may be used.
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            try:
                known[canonicalize_name(requirement.name)] = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
    return known


@functools.cache
def _origin(file: str) -> str | None:
    for name, package in _candidates(file):
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        root = os.path.realpath(str(distribution.locate_file("")))
        if os.path.relpath(file, root) in _recorded(name):
            return f"{name} {distribution.version}"
        if _is_editable(distribution) and package.is_dir():
            return f"{name} {distribution.version} {_digest(package)}"
    return None


def _is_editable(distribution: metadata.Distribution) -> bool:
    text = distribution.read_text("direct_url.json") or "{}"
    return bool(json.loads(text).get("dir_info", {}).get("editable"))


def _digest(folder: Path) -> str:
    """Digest of the Python files in a folder.

    Raises:
        Unhashable: One was written later than this process may have imported it.
    """
    digest = blake3()
    for path in sorted(folder.rglob("*.py")):
        if path.stat().st_mtime > _BEGUN:
            raise Unhashable(f"{path.name} of {folder.name} was changed since this process began")
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return str(digest.hexdigest())


def _candidates(file: str) -> Iterator[tuple[str, Path]]:
    """Distributions that may have installed a file, with the top-level package it is in."""
    for entry in sys.path:
        folder = os.path.realpath(entry or os.curdir)
        if file.startswith(folder + os.sep):
            top = os.path.relpath(file, folder).split(os.sep)[0]
            name, package = top.removesuffix(".py"), Path(folder, top)
            # Most are called as their package is; to ask for all of them takes a while.
            yield name, package
            yield from ((other, package) for other in _packages().get(name, ()))


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@functools.cache
def _recorded(name: str) -> frozenset[str]:
    return frozenset(str(file) for file in metadata.files(name) or ())
