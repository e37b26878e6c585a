"""The wheels are complete: installed on their own, outside the repository, they list and lower."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import frozen
from examples import documents
from examples.documents import GUIDE, README, ROOT

pytest.importorskip("hatchling", reason="hatchling builds the wheels; pip install -e '.[test]'")
pytestmark = pytest.mark.slow

CHECKOUT = (
    *(".ci", "LICENSE", "Makefile", "README.md", "etdev", "plugins", "pyproject.toml"),
    "registry.toml",
)
PACKAGES = {
    "etdev": ROOT / "etdev",
    **{path.name.replace("-", "_"): path for path in sorted((ROOT / "plugins").glob("etdev-*"))},
}
PLUGINS = ("cpu", "cuda", "openvino", "trt")
# The build backend is here, and the test asks no network for it.
NO_NETWORK = ("--no-build-isolation", "--no-deps")
NET = """
import torch

def model():
    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)
"""
WHERE = """
import importlib.util, json, sys
names = ("etdev", *(f"etdev_{name}" for name in sys.argv[1:]))
print(json.dumps({name: importlib.util.find_spec(name).origin for name in names}))
"""


def run(command: Sequence[object], folder: Path, **environ: str) -> str:
    """What a command prints, run as if neither this repository nor an outer make were there."""
    unset = ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    inherited = {key: value for key, value in os.environ.items() if key not in unset}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@frozen
class Environment:
    """A fresh environment that sees torch and the rest, and nothing of etdev.

    Args:
        folder: Where it is.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        venv.create(folder, with_pip=False)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "shared.pth").write_text(str(_shared(folder / "shared")))
        # It installs into this environment and downloads nothing.
        pip = f'"{sys.executable}" -m pip --python "{folder}/bin/python"'
        script = folder / "bin" / "pip"
        script.write_text(f'#!/bin/sh\nexec {pip} "$@" --quiet {" ".join(NO_NETWORK)}\n')
        script.chmod(0o755)
        return cls(folder)

    def run(self, command: Sequence[object], folder: Path, **environ: str) -> str:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return run(command, folder, PATH=path, **environ)

    def origins(self, plugins: Sequence[str], folder: Path) -> dict[str, Path]:
        """Where the packages are imported from."""
        told = self.run(["python", "-c", WHERE, *plugins], folder)
        return {name: Path(path) for name, path in json.loads(told).items()}


def _shared(folder: Path) -> Path:
    """All that is installed where the tests run, but for etdev and what editable installs leave."""
    folder.mkdir()
    for path in sys.path:
        if Path(path).name not in ("site-packages", "dist-packages"):
            continue
        for entry in sorted(Path(path).iterdir()):
            own = entry.name.startswith(("etdev", "_editable", "__editable__"))
            if not own and entry.suffix != ".pth" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder outside of the repository, with a checkout in which `make wheels` was run."""
    folder = tmp_path_factory.mktemp("outside")
    checkout = folder / "etdev"
    checkout.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "tests")
    for name in CHECKOUT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout / name)
    here = (f"BIN={Path(sys.executable).parent}", "--old-file=.venv/made")
    run(["make", "wheels", *here, f"WHEEL_OPTIONS={NO_NETWORK[0]}"], checkout)
    (folder / "net.py").write_text(NET)
    return folder


def wheel(outside: Path, name: str) -> zipfile.ZipFile:
    (path,) = (outside / "etdev" / "dist").glob(f"{name}-*.whl")
    return zipfile.ZipFile(path)


def test_there_is_a_wheel_of_each_distribution(outside):
    names = [path.name.partition("-")[0] for path in (outside / "etdev" / "dist").iterdir()]
    assert sorted(names) == sorted(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_has_every_module_of_its_package(name, outside):
    folder = PACKAGES[name] if name == "etdev" else PACKAGES[name] / name
    modules = {f"{name}/{path.relative_to(folder)}" for path in folder.rglob("*.py")}
    inside = {entry for entry in wheel(outside, name).namelist() if ".dist-info/" not in entry}
    page = {f"etdev/page/page.{kind}" for kind in ("html", "css", "js")}
    own = {"etdev/registry.toml", *page} if name == "etdev" else set()
    assert inside == modules | {f"{name}/py.typed"} | own


def test_the_wheel_of_the_host_has_the_registry_as_it_is(outside):
    shipped = wheel(outside, "etdev").read("etdev/registry.toml")
    assert shipped == (ROOT / "registry.toml").read_bytes()


@pytest.fixture(scope="module")
def installed(outside, tmp_path_factory):
    """All five wheels in a fresh environment."""
    made = Environment.make(tmp_path_factory.mktemp("wheels") / "env")
    made.run(["pip", "install", *sorted((outside / "etdev" / "dist").iterdir())], outside)
    return made


def test_installed_wheels_are_what_is_imported(installed, outside):
    origins = installed.origins(PLUGINS, outside)
    assert sorted(origins) == sorted(PACKAGES)
    assert all(installed.folder in path.parents for path in origins.values())


def test_installed_wheels_offer_their_plugins(installed, outside):
    listed = json.loads(installed.run(["etdev", "plugins", "--json"], outside))["plugins"]
    assert {entry["name"] for entry in listed if entry["hooks"]} == set(PLUGINS)


def test_installed_wheels_lower_a_model(installed, outside):
    installed.run(["etdev", "lower", "net.py:model", "-o", "net.pte", "--plugin", "cpu"], outside)
    assert b"XnnpackBackend" in (outside / "net.pte").read_bytes()


def pip_lines():
    return [command for command in documents.commands(README) if command.startswith("pip ")]


@pytest.mark.parametrize("line", pip_lines())
def test_an_install_line_of_the_readme_works(line, outside, tmp_path):
    repository = outside / "etdev"
    if "git+" in line and not (repository / ".git").exists():
        identity = ("-c", "user.name=etdev", "-c", "user.email=etdev@localhost")
        run(["git", "init", "--quiet"], repository)
        run(["git", "add", "."], repository)
        run(["git", *identity, "commit", "--quiet", "--message", "A checkout"], repository)
    fresh = Environment.make(tmp_path / "env")
    fresh.run(["sh", "-ec", line], outside, URL=f"file://{repository}")
    origins = fresh.origins(["cpu"], outside)
    assert all(fresh.folder in path.parents for path in origins.values())
    listed = json.loads(fresh.run(["etdev", "plugins", "--json"], outside))["plugins"]
    assert {entry["name"] for entry in listed if entry["hooks"]} == {"cpu"}


def test_the_readme_installs_from_a_checkout_a_url_and_wheels():
    assert len(pip_lines()) == 3


def test_the_package_of_the_guide_is_found_when_it_is_installed(installed, outside, tmp_path):
    documents.write_package(tmp_path)
    (line,) = [command for command in documents.commands(GUIDE) if command.startswith("pip ")]
    installed.run(["sh", "-ec", line], tmp_path)
    listed = json.loads(installed.run(["etdev", "plugins", "--json"], tmp_path))["plugins"]
    assert [(entry["name"], entry["ready"]) for entry in listed][:2] == [
        ("adder", True),
        ("cpu", True),
    ]
