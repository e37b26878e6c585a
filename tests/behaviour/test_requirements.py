"""Requirements: only etdev bounds torch and ExecuTorch, and each Python can install the pins."""

from __future__ import annotations

import itertools
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


def bounds(texts):
    """Yield the requirements that exclude later releases of torch or ExecuTorch."""
    for need in map(Requirement, texts):
        if need.name in ("torch", "executorch") and {s.operator for s in need.specifier} - {">="}:
            yield str(need)


def test_only_the_host_bounds_torch_and_executorch():
    assert len(list(bounds(PROJECT["dependencies"]))) == 2
    found = []
    for file in (ROOT / "plugins").glob("etdev-*/pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {})
        found += bounds(itertools.chain(project["dependencies"], *extras.values()))
    for file in (ROOT / "plugins").glob("etdev-*/etdev_*/etdev-plugin.toml"):
        found += bounds(tomllib.loads(file.read_text()).get("requires", ()))
    assert not found, "etdev has the upper bounds, and warns of later versions"


def test_the_readme_installs_the_newest_torch_that_was_tried():
    (torch,) = (need for need in map(Requirement, PROJECT["dependencies"]) if need.name == "torch")
    (below,) = (part for part in torch.specifier if part.operator == "<")
    assert f'pip install "torch{below}"' in (ROOT / "README.md").read_text()


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
