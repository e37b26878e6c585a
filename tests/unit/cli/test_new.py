"""`etdev new`: the names that it takes, and that it writes all or nothing."""

import ast
import json
import stat
from pathlib import Path

import pytest
from support.shell import fails, invoke, succeeds

from etdev.registry.registry import tomllib
from etdev.scaffold.project import KINDS


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_distribution_is_complete_and_listed(kind, here):
    told = succeeds(f"new {kind} my-npu")
    folder = here / "etdev-my-npu"
    *listed, blank, following = told.splitlines()
    assert (listed, blank) == ([f"etdev-my-npu/{path}" for path in files(folder)], "")
    assert following == 'plugin my-npu; next: pip install --editable "etdev-my-npu[test]"'
    package = {f"etdev_my_npu/{name}" for name in ("__init__.py", "plugin.py", "py.typed")}
    own = {"README.md", "pyproject.toml", ".github/workflows/test.yml", ".gitignore"}
    assert package | own | {"tests/test_conformance.py"} <= set(files(folder))
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["etdev"] == {"my-npu": "etdev_my_npu.plugin:MyNpuPlugin"}
    for path in folder.rglob("*"):
        assert "$" not in path.name
        if path.suffix == ".py":
            ast.parse(path.read_text())
        if path.suffix in (".py", ".md", ".toml"):
            assert "$" not in path.read_text()
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "tests").stat().st_mode)


def test_the_guide_is_printed_where_the_readme_of_a_distribution_says_so(here):
    guide = succeeds("new guide")
    assert guide.startswith("# Writing a plugin\n")
    assert json.loads(succeeds("new guide --json"))["guide"].strip() == guide.strip()
    for kind in KINDS:
        succeeds(f"new {kind} of-{kind}")
        assert "`etdev new guide` prints" in (here / f"etdev-of-{kind}/README.md").read_text()


@pytest.mark.parametrize(
    ("text", "plugin"),
    [
        ("npu", "npu"),
        ("My_NPU", "my-npu"),
        ("my..npu", "my-npu"),
        ("etdev-npu", "npu"),
        ("Etdev_Npu", "npu"),
        ("3d", "3d"),
    ],
)
def test_a_name_is_normalised_as_pip_does(text, plugin, here):
    assert succeeds("new backend", text).splitlines()[-1].startswith(f"plugin {plugin}; ")
    assert (here / f"etdev-{plugin}").is_dir()


PEP_503 = "use letters, digits, -, _ and ., with a letter or a digit at both ends"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", f"new: '' is not a name that PEP 503 allows; {PEP_503}"),
        ("my npu", f"new: 'my npu' is not a name that PEP 503 allows; {PEP_503}"),
        ("npu-", f"new: 'npu-' is not a name that PEP 503 allows; {PEP_503}"),
        ("../npu", f"new: '../npu' is not a name that PEP 503 allows; {PEP_503}"),
        ("nüp", f"new: 'nüp' is not a name that PEP 503 allows; {PEP_503}"),
        ("n" * 101, "new: the name has 101 letters; choose a shorter one"),
        ("cpu", "cpu: is the name of etdev's own etdev-cpu; choose another name"),
        ("etdev_TRT", "trt: is the name of etdev's own etdev-trt; choose another name"),
        ("etdev", "etdev: is the name of etdev's own etdev; choose another name"),
        (
            "portable",
            "portable: is reserved for nodes left to portable kernels; choose another name",
        ),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_nothing_can_have_is_refused(kind, text, line, here):
    assert fails(f"new {kind}", text) == line
    assert list(here.iterdir()) == []


def test_a_backend_that_executorch_has_is_refused_as_it_goes_by_class_names(here):
    assert fails("new backend vulkan") == (
        "vulkan: ExecuTorch has a backend VulkanBackend already; choose another name, or write a "
        "plugin for it: etdev new plugin vulkan"
    )
    succeeds("new plugin vulkan")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_is_overwritten(kind, here):
    place = here / "etdev-npu"
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("nowhere")
    line = "etdev-npu: is there already; choose another name, or --into DIR"
    assert fails("new plugin npu") == line
    assert [path.name for path in here.iterdir()] == ["etdev-npu"]
    succeeds("new plugin npu --into other/folder")
    assert Path("other/folder/etdev-npu/pyproject.toml").is_file()


def test_the_help_says_what_to_do_next():
    text = invoke("new --help").stdout
    for word in ("plugin", "backend", "pip install", "pytest", "etdev plugins"):
        assert word in text
