"""A verdict on plain ExecuTorch against the releases in which its fault is said to be."""

from __future__ import annotations

import re
from importlib import metadata

from packaging.version import Version

from etdev.schema.fault import Fault
from etdev.schema.releases import Release
from support.quirks.verdict import RIGHT, Verdict

_PROJECTS = ("executorch", "torch")


def disagreement(place: str, fault: Fault, verdict: Verdict) -> str:
    """Return what the verdict contradicts and the line to write; empty where both agree.

    Args:
        place: The place of the row.
        fault: The row.
        verdict: The verdict on its repro, on plain ExecuTorch.
    """
    if _is_being_fixed(fault) or (verdict.kind == RIGHT) != fault.is_present:
        return ""
    if verdict.kind == RIGHT:
        lines = " or ".join(f'fixed="{release}"' for release in _releases(fault))
        return f"upstream is right: write {lines} into {place}"
    said = " and ".join(
        f'{key}="{release}"'
        for key, release in (("since", fault.since), ("fixed", fault.fixed))
        if release
    )
    return f"upstream is not right, though {place} has {said}: {verdict}"


def _is_being_fixed(fault: Fault) -> bool:
    """Return True for a source build on the way to the release that fixes a fault."""
    fixed = fault.fixed
    return bool(fixed and not fixed.is_reached() and fixed.is_reached(by_source=True))


def _releases(fault: Fault) -> list[Release]:
    """Return the installed releases of the projects whose files are at fault."""
    files = re.findall(rf"\b({'|'.join(_PROJECTS)})/", fault.upstream)
    projects = dict.fromkeys(files) or _PROJECTS
    return [Release(project, _release(project)) for project in projects]


def _release(project: str) -> Version:
    """Return the installed version without its build, and without a patch number of 0."""
    found = Version(Version(metadata.version(project)).base_version)
    return Version(f"{found.major}.{found.minor}") if not found.micro else found
