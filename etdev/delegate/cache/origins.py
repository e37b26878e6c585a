"""The origin of code: the distribution and version that a function comes from."""

from __future__ import annotations

import functools
import json
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from blake3 import blake3
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from etdev.delegate.cache.canonical import Uncacheable

_BEGUN = time.time()
_HOST = ("etdev", "executorch", "torch")


def origin(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the origin of a function and of the functions it wraps, such as `executorch 1.5.1`.

    The version of an editable distribution says nothing of its files, so their digest is added. A
    file that its distribution did not record has no origin: it was put in the place of another.

    Returns:
        The origins; None if one is unknown.

    Raises:
        Uncacheable: The files of an editable distribution are not those that were imported.
    """
    known = list[str]()
    each: Any = function
    while each is not None:
        code = getattr(each, "__code__", None)
        if code is None:
            return None
        place = _origin(code.co_filename)
        if place is None:
            return None
        known += [place] if place else []
        each = getattr(each, "__wrapped__", None)
    return tuple(known) or None


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Return versions of distributions, and of what they require unless they are the host's."""
    known: dict[str, str] = {}
    for name in sorted({*_HOST, *distributions}):
        known.update(_versions(canonicalize_name(name)))
    return known


@functools.cache
def _versions(name: str) -> dict[str, str]:
    distribution = _distribution(name)
    if distribution is None:
        return {name: "missing"}
    known = {name: distribution.version}
    if name in ("etdev", "torch"):
        return known
    extras = ["", *(distribution.metadata.get_all("Provides-Extra") or ())]
    for requirement in map(Requirement, distribution.requires or ()):
        marker = requirement.marker
        # Extras too: the installed ones may be used.
        needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if needed and (required := _distribution(requirement.name)):
            known[canonicalize_name(requirement.name)] = required.version
    return known


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _origin(filename: str) -> str | None:
    """Return the origin of a file; empty for Python's own, whose version is in the key."""
    file, library = Path(filename).resolve(), Path(sysconfig.get_path("stdlib")).resolve()
    if file.is_relative_to(library) and "site-packages" not in file.parts:
        return ""
    for folder in (Path(entry or ".").resolve() for entry in sys.path):
        if not file.is_relative_to(folder):
            continue
        package = folder / file.relative_to(folder).parts[0]
        for name in _names_for(package.stem):
            if (distribution := _distribution(name)) is None:
                continue
            version = f"{name} {distribution.version}"
            root = Path(str(distribution.locate_file(""))).resolve()
            if file.is_relative_to(root) and file.relative_to(root).as_posix() in _recorded(name):
                return version
            url = json.loads(distribution.read_text("direct_url.json") or "{}")
            if url.get("dir_info", {}).get("editable") and package.is_dir():
                return f"{version} {_digest(package)}"
    return None


def _names_for(package: str) -> Iterator[str]:
    """Yield names of distributions that may have installed a package."""
    # Most are called as their package is; to ask for all of them takes a while.
    yield package
    yield from _packages().get(package, ())


def _digest(folder: Path) -> str:
    """Return the digest of the Python files in a folder.

    Raises:
        Uncacheable: One was written later than this process may have imported it.
    """
    digest = blake3()
    for path in sorted(folder.rglob("*.py")):
        if path.stat().st_mtime > _BEGUN:
            raise Uncacheable(f"{path.name} of {folder.name} was changed since this process began")
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return str(digest.hexdigest())


_packages = functools.cache(metadata.packages_distributions)


@functools.cache
def _recorded(name: str) -> frozenset[str]:
    return frozenset(file.as_posix() for file in metadata.files(name) or ())
