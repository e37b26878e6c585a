"""Releases of other projects: those that are installed, and those that etdev was tried with."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from attrs import frozen
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from etdev.errors import EtdevError, warn_or_raise


@frozen
class Release:
    """A release of another project, written `executorch 1.6`.

    Args:
        project: The distribution, as pip names it.
        version: The version of the release.
    """

    project: str
    version: Version

    @classmethod
    def parse(cls, text: str) -> Release:
        """Read a release.

        Raises:
            EtdevError: The text is not a distribution and a version.
        """
        project, _, version = text.partition(" ")
        try:
            return cls(project, Version(version))
        except InvalidVersion as error:
            raise EtdevError(text, "is not a release", 'write it as "executorch 1.6"') from error

    def is_reached(self, by_source: bool = False) -> bool:
        """Return True if this release or a later one is installed.

        Args:
            by_source: Take a source build such as `1.6.0a0+gabc` for its release.
        """
        found = installed(self.project)
        if found and by_source:
            found = Version(found.base_version)
        return found is not None and found >= self.version

    def __str__(self) -> str:
        return f"{self.project} {self.version}"


@cache
def installed(project: str) -> Version | None:
    """Return the version of a distribution that is installed; None without one."""
    try:
        return Version(metadata.version(project))
    except metadata.PackageNotFoundError:
        return None


def untried() -> list[str]:
    """Return the installed versions of torch and ExecuTorch that etdev was never tried with.

    The tried ones are those that etdev's own metadata asks for. A source build such as
    `1.6.0a0+gabc` is not among `<1.6`.
    """
    return [
        f"{project} {version} (tried: {tried})"
        for project, tried in _tried().items()
        if (version := installed(project)) and not tried.contains(version, prereleases=True)
    ]


@cache
def warn_of_untried() -> None:
    """Warn, once in a process, of versions that etdev was never tried with."""
    if found := untried():
        what = f"was never tried with {' and '.join(found)}, and assumes all known faults there"
        error = EtdevError("etdev", what, "verify what it lowers, or install a tried version")
        warn_or_raise(error, False)


@cache
def _tried() -> dict[str, SpecifierSet]:
    try:
        needs = map(Requirement, metadata.requires("etdev") or ())
    except metadata.PackageNotFoundError:
        return {}
    return {need.name: need.specifier for need in needs if need.name in ("torch", "executorch")}
