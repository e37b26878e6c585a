"""The wheels are complete: installed on their own, outside the repository, they list and lower."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from support import documents
from support.documents import GUIDE, README, ROOT
from support.shell.environments import NO_NETWORK, Environment, run

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
# What they have beside modules.
FILES = {
    "etdev": (
        ["registry.toml", *(f"plugins/{path.name}" for path in (ROOT / "plugins").glob("*.md"))],
        "templates/**/*.txt",
    ),
    "etdev_cpp": (["sources/frames.h", "sources/runner.cpp"], "templates/*.*"),
    "etdev_page": (["page.html", "page.css"], "script/*.js"),
}
NET = """
import torch

def model():
    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)
"""
SKETCH = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "etdev-sketch"
version = "1.0"

[project.entry-points."etdev.commands"]
sketch = "etdev_sketch:command"

[project.entry-points."etdev.views"]
sketch = "etdev_sketch"
"""
SKETCH_CODE = """
import click

@click.command("sketch")
@click.argument("source")
def command(source):
    "Say what is sketched."
    print(f"a sketch of {source}")

def check(file):
    pass

def write(file, viewed):
    file.write_text(f"{viewed.title}: {len(viewed.plan.methods)} methods")
"""
SUM = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x + x

def model():
    return Net(), (torch.ones(2, 4),)
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder outside of the repository, with a checkout in which `make wheels` was run."""
    folder = tmp_path_factory.mktemp("outside")
    checkout = folder / "etdev"
    checkout.mkdir()
    for name in CHECKOUT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=_unneeded)
        else:
            shutil.copy(ROOT / name, checkout / name)
    here = (f"BIN={Path(sys.executable).parent}", "--old-file=.venv/made")
    run(["make", "wheels", *here, f"WHEEL_OPTIONS={NO_NETWORK[0]}"], checkout)
    (folder / "net.py").write_text(NET)
    return folder


def _unneeded(folder: str, names: list[str]) -> set[str]:
    """What is no part of a wheel; a template has tests that are."""
    caches = {name for name in names if name == "__pycache__" or name.endswith("_cache")}
    return caches if "templates" in Path(folder).parts else caches | ({"tests"} & set(names))


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
    files, pattern = FILES.get(name, ([], "*.js"))
    found = [*folder.rglob(pattern), *folder.glob("etdev-plugin.toml")]
    own = {str(path.relative_to(folder)) for path in found} | {*files, "py.typed"}
    assert inside == modules | {f"{name}/{file}" for file in own}


def test_the_wheel_of_the_host_has_the_registry_as_it_is(outside):
    shipped = wheel(outside, "etdev").read("etdev/registry.toml")
    assert shipped == (ROOT / "registry.toml").read_bytes()


@pytest.fixture(scope="module")
def installed(outside, tmp_path_factory):
    """All wheels in a fresh environment."""
    made = Environment.make(tmp_path_factory.mktemp("wheels") / "env")
    made.run(["pip", "install", *sorted((outside / "etdev" / "dist").iterdir())], outside)
    return made


def test_installed_wheels_are_what_is_imported(installed, outside):
    origins = installed.origins([*PLUGINS, "cpp", "llm", "page", "reduce", "tune"], outside)
    assert sorted(origins) == sorted(PACKAGES)
    assert all(installed.folder in path.parents for path in origins.values())


def test_installed_wheels_offer_their_plugins(installed, outside):
    listed = json.loads(installed.run(["etdev", "plugins", "--json"], outside))["plugins"]
    assert {entry["name"] for entry in listed if entry["hooks"]} == {
        *PLUGINS,
        "portable",
    }


def test_installed_wheels_have_the_guide(installed, outside):
    assert installed.run(["etdev", "new", "guide"], outside).startswith("# Writing a plugin")


@pytest.mark.suite
def test_installed_wheels_lower_a_model(installed, outside):
    installed.run(["etdev", "lower", "net.py:model", "-o", "net.pte", "--plugin", "cpu"], outside)
    assert b"XnnpackBackend" in (outside / "net.pte").read_bytes()


def test_the_extras_name_the_distributions(outside):
    wheels = zipfile.Path(wheel(outside, "etdev"))
    (metadata,) = [path / "METADATA" for path in wheels.iterdir() if path.name.endswith("-info")]
    lines = metadata.read_text("utf-8").splitlines()
    for extra, distribution in (
        ("cpp", "etdev-cpp"),
        ("llm", "etdev-llm"),
        ("reduce", "etdev-reduce"),
        ("tune", "etdev-tune"),
        ("page", "etdev-page"),
        ("html", "etdev-page"),
    ):
        assert f"Requires-Dist: {distribution}==0.1.0; extra == '{extra}'" in lines


@pytest.fixture(scope="module")
def plain(outside, tmp_path_factory):
    """The host and a plugin alone, in a fresh environment."""
    made = Environment.make(tmp_path_factory.mktemp("plain") / "env")
    wheels = [next((outside / "etdev" / "dist").glob(f"{n}-*")) for n in ("etdev", "etdev_cpu")]
    made.run(["pip", "install", *wheels], outside)
    return made


@pytest.mark.suite
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("etdev tune net.py:model -o net.pte",
         "error: tune: not installed; install etdev-tune"),
        ("etdev tune --help", "error: tune: not installed; install etdev-tune"),
        ("etdev plan net.py:model --html net.html",
         "error: html: not installed; install etdev-page"),
        ("etdev new app net.pte", "error: app: not installed; install etdev-cpp"),
        ("python -c 'import etdev; etdev.tune'",
         "ImportError: etdev.tune is not installed; install etdev-tune"),
        ("python -c 'from etdev import Tuning'",
         "ImportError: etdev.Tuning is not installed; install etdev-tune"),
        ("python -c 'import etdev; etdev.Page'",
         "ImportError: etdev.Page is not installed; install etdev-page"),
    ],
)  # fmt: skip
def test_a_plain_install_names_what_to_install(line, message, plain, outside):
    told = plain.run(["sh", "-c", f"{line} 2>&1 || true"], outside)
    assert told.splitlines()[-1] == f"{message} from the repository of etdev"


@pytest.mark.suite
def test_a_plain_install_has_all_of_its_own_names_and_commands(plain, outside):
    assert "tune " not in plain.run(["etdev", "--help"], outside).partition("Commands:")[2]
    plain.run(["python", "-c", "from etdev import *; Lowerer"], outside)


@pytest.mark.suite
def test_pip_takes_an_extra_of_a_checkout_from_beside_it(plain, outside, tmp_path):
    """No index has etdev-tune and etdev-page; what they need otherwise is installed."""
    fresh = Environment.make(tmp_path / "env", beneath=plain)
    pip = [sys.executable, "-m", "pip", "--python", fresh.folder / "bin" / "python", "install"]
    options = ("--quiet", "--no-index", "--no-build-isolation")
    places = [f"./plugins/etdev-{name}" for name in ("tune", "page")]
    run([*pip, *options, ".[tune,html]", *places], outside / "etdev")
    assert "Measure which plugins" in fresh.run(["etdev", "tune", "--help"], outside)


@pytest.mark.suite
def test_a_distribution_of_somebody_else_adds_a_command_and_a_view(installed, tmp_path):
    project = tmp_path / "etdev-sketch"
    (project / "etdev_sketch").mkdir(parents=True)
    (project / "pyproject.toml").write_text(SKETCH)
    (project / "etdev_sketch" / "__init__.py").write_text(SKETCH_CODE)
    (tmp_path / "net.py").write_text(NET)
    fresh = Environment.make(tmp_path / "env", beneath=installed)
    fresh.run(["pip", "install", project], tmp_path)
    assert "sketch Say what" in " ".join(fresh.run(["etdev", "--help"], tmp_path).split())
    assert fresh.run(["etdev", "sketch", "net.py"], tmp_path) == "a sketch of net.py\n"
    fresh.run(["etdev", "plan", "net.py:model", "--view", "sketch=net.txt"], tmp_path)
    assert (tmp_path / "net.txt").read_text() == "net.py:model: 1 methods"


def pip_lines():
    return [command for command in documents.commands(README) if command.startswith("pip ")]


@pytest.mark.suite
@pytest.mark.parametrize("line", pip_lines())
def test_an_install_line_of_the_readme_works(line, outside, tmp_path):
    repository = outside / "etdev"
    if "git+" in line and not (repository / ".git").exists():
        identity = ("-c", "user.name=etdev", "-c", "user.email=etdev@localhost")
        run(["git", "init", "--quiet"], repository)
        run(["git", "add", "."], repository)
        run(["git", *identity, "commit", "--quiet", "--message", "A checkout"], repository)
    fresh = Environment.make(tmp_path / "env")
    fresh.run(["sh", "-ec", line], repository, URL=f"file://{repository}")
    origins = fresh.origins(["cpu"], outside)
    assert all(fresh.folder in path.parents for path in origins.values())
    listed = json.loads(fresh.run(["etdev", "plugins", "--json"], outside))["plugins"]
    assert {entry["name"] for entry in listed if entry["hooks"]} == {"cpu", "portable"}


def test_the_readme_installs_from_a_checkout_a_url_and_wheels():
    assert len(pip_lines()) == 3


@pytest.mark.suite
def test_the_package_of_the_guide_is_found_when_it_is_installed(installed, outside, tmp_path):
    documents.write_package(tmp_path)
    (line,) = [command for command in documents.commands(GUIDE) if command.startswith("pip ")]
    installed.run(["sh", "-ec", line], tmp_path)
    listed = json.loads(installed.run(["etdev", "plugins", "--json"], tmp_path))["plugins"]
    assert [(entry["name"], entry["ready"]) for entry in listed][:2] == [
        ("adder", True),
        ("cpu", True),
    ]


@pytest.mark.suite
@pytest.mark.parametrize("kind", ["backend", "plugin"])
def test_a_new_plugin_installs_lowers_and_passes_its_own_tests(kind, installed, tmp_path):
    fresh = Environment.make(tmp_path / "env", beneath=installed)
    fresh.run(["etdev", "new", kind, "My_NPU"], tmp_path)
    folder = tmp_path / "etdev-my-npu"
    fresh.run(["pip", "install", folder], tmp_path)
    listed = json.loads(fresh.run(["etdev", "plugins", "--json"], tmp_path))["plugins"]
    (entry,) = [entry for entry in listed if entry["name"] == "my-npu"]
    assert (entry["distribution"], entry["ready"]) == ("etdev-my-npu", True)
    (tmp_path / "net.py").write_text(SUM)
    command = ["etdev", "lower", "net.py:model", "-o", "net.pte", "--plugin", "my-npu"]
    fresh.run([*command, "--no-cache"], tmp_path)
    backend = b"MyNpuBackend" if kind == "backend" else b"XnnpackBackend"
    assert backend in (tmp_path / "net.pte").read_bytes()
    ruff = Path(sys.executable).with_name("ruff")
    for check in ([ruff, "check"], [ruff, "format", "--check"], ["python", "-m", "mypy"]):
        # What is known of etdev by now is the same for every new plugin.
        fresh.run(check, folder, MYPY_CACHE_DIR=str(installed.folder / "mypy"))
    told = fresh.run(["python", "-m", "pytest", "-q", "-p", "no:xdist"], folder)
    assert "SKIPPED" not in told
    board = json.loads((folder / "conformance.json").read_text())
    assert {result["outcome"] for result in board["results"]} == {"kept"}
