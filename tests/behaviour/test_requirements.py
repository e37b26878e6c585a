"""What the Makefile pins can be installed on every Python that etdev declares."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support.documents import ROOT

from etdev.registry.registry import tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    version
    for version in (f"3.{minor}" for minor in range(30))
    if SpecifierSet(PROJECT["requires-python"]).contains(version)
]


def refuses(pin, python):
    """Whether a pin holds on that Python, and what is installed here needs another one."""
    if pin.marker and not pin.marker.evaluate(
        {"python_version": python, "python_full_version": f"{python}.0"}
    ):
        return False
    try:
        installed = metadata(pin.name)
    except PackageNotFoundError:
        return False
    pinned = pin.specifier.contains(installed["Version"])
    return pinned and f"{python}.0" not in SpecifierSet(installed.get("Requires-Python", ""))


def test_no_pin_is_of_a_version_that_a_declared_python_can_not_install():
    assert PYTHONS[0] == "3.10"
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line[:1] not in ("", "#")]
    refused = [(str(pin), python) for pin in pins for python in PYTHONS if refuses(pin, python)]
    assert not refused, "write such a marker behind it as others have"
