"""The documents: every hook and reason is in them, and every block of them runs."""

import ast
import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path

import attrs
import pytest
import torch
from click.testing import CliRunner
from etdev_cpp.cli import APP
from etdev_cpp.size import SIZE
from etdev_tune.precision.schemes import plugin_schemes
from etdev_tune.report import TUNING
from support import documents, reference
from support.documents import GUIDE, INTEGRATION, README, ROOT, blocks
from support.shell.distributions import describe
from support.toys.runtime import assert_agrees
from torch import nn

import etdev
import etdev.graph
from etdev import (
    Claim,
    Device,
    Group,
    KeepWhole,
    Lowerer,
    Probe,
    Refusal,
    hookimpl,
    hookspecs,
    registry,
)
from etdev.cli.main import COMMANDS, main
from etdev.cli.viewing import Viewed
from etdev.registry import discovery, extensions, plugin, selection
from etdev.registry.registry import tomllib
from etdev.runtime.check import check
from etdev.schema import reasons
from etdev.schema.documents import DOCUMENTS as DOCUMENTS_PRINTED
from etdev.testing import CHECKS

DOCUMENTS = (README, GUIDE)
# test_integration.py runs the blocks of the third.
PAGES = (*DOCUMENTS, INTEGRATION)
TOML = [block for document in DOCUMENTS for block in blocks(document, "toml")]
# A module with something for every example: a product, a sum, a weight.
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return torch.mm(x, self.weight) + 1


def model():
    return Net(), (torch.ones(2, 4),)
"""
SPACE: dict = {}
exec(NET, SPACE)
Net = SPACE["Net"]


def hooks():
    functions = [value for value in vars(hookspecs).values() if inspect.isfunction(value)]
    specs = [function for function in functions if hasattr(function, "etdev_spec")]
    return {function.__name__: function for function in specs}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with all that the documents name: a model, a registry, the guide's package."""
    (tmp_path / "net.py").write_text(NET)
    documents.write_package(tmp_path)
    declared = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["entry-points"]
    describe(tmp_path, "etdev-adder", {"etdev": declared["etdev"]})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ETDEV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ETDEV_MEASUREMENTS", str(tmp_path / "measurements"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "etdev_adder"]:
        del sys.modules[name]


def test_the_plugin_host_knows_every_hook():
    assert set(plugin.HOOKS) == set(hooks())


def test_the_readme_shows_hooks_that_exist_and_the_three_of_a_backend():
    shown = [name.strip("`") for name, *_ in documents.rows(README, "| hook | when | says |")]
    assert shown[:3] == ["claim_nodes", "claim_constants", "resolve_device"]
    assert set(shown) <= set(hooks())


def test_the_readme_prints_what_it_says(desk, capsys):
    (desk / "registry.toml").write_text("[plugins.cpu]\n")
    code, told = next(blocks(README, "python")), next(blocks(README, ""))
    exec(compile(code.text, str(README), "exec"), {})
    assert capsys.readouterr().out == told.text


def test_the_reference_is_what_the_docstrings_say():
    text = (ROOT / "plugins" / "REFERENCE.md").read_text(encoding="utf-8")
    assert text == reference.reference() + "\n", (
        "make it: PYTHONPATH=tests python -m support.reference > plugins/REFERENCE.md"
    )
    assert all(f"### {name}\n" in text for name in hooks())


def test_the_reference_describes_every_field_of_a_class():
    places = [place for chapter in reference.CHAPTERS for place in chapter.names]
    things = [reference.loaded(place) for place in places]
    classes = [thing for thing in things if inspect.isclass(thing)]
    assert len(classes) > 20
    for thing in classes:
        names = [name for name, *_ in reference.arguments(thing)]
        assert reference.described_arguments(thing).keys() >= set(names), thing


@pytest.mark.parametrize("name", hooks())
def test_a_hook_says_when_and_what_and_shows_an_example(name):
    text = inspect.getdoc(hooks()[name])
    assert "Called" in text
    assert "Returns:" in text
    arguments = inspect.signature(hooks()[name]).parameters
    assert all(f"    {argument}: " in text for argument in arguments)


@pytest.mark.parametrize("name", hooks())
def test_the_example_of_a_hook_runs(name):
    example = inspect.cleandoc(inspect.getdoc(hooks()[name]).split("Example:\n")[1])
    own = {"claim_nodes": "Claim('XnnpackBackend', [Group([n for n in program.graph.nodes if n.op"
           " == 'call_function'])], device_types=('cpu', 'cuda'))"}  # fmt: skip
    body = [f"    {line}" for line in example.splitlines()]
    code = ["class Example:", "    name = 'example'", *body]
    if name != "claim_nodes":
        code += ["    @hookimpl", "    def claim_nodes(self, program):"]
        code += ["        return " + own["claim_nodes"]]
    code = [re.sub(r"def (\w+)\((?!self)", r"def \1(self, ", line) for line in code]
    space = {key: getattr(etdev, key) for key in etdev.__all__}
    exec("\n".join(code), space)
    import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

    plan = etdev.Lowerer([space["Example"]()]).plan(Net(), (torch.randn(2, 4),))
    (entry,) = [e for e in plan["forward"].ledger if "mm" in e.op or "linear" in e.op]
    assert name in ("claim_nodes", *selection.from_object(space["Example"]()).hooks)
    assert entry.owner in ("example", "portable")


HARDSWISH = torch.ops.aten.hardswish.default


class Recorder:
    """Has every hook, and writes down which are called."""

    name = "recorder"

    def __init__(self):
        self.called: list[str] = []

    @hookimpl
    def claim_nodes(self, program):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        self.called.append("claim_nodes")
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        return Claim("XnnpackBackend", [Group(calls)])

    @hookimpl
    def claim_constants(self, partition):
        self.called.append("claim_constants")
        return partition.constants


def recording(name, answer):
    """A hook that writes down its name."""

    def hook(self):
        self.called.append(name)
        return answer

    hook.__name__ = name
    return hookimpl(hook)


ANSWERS = {
    "keep_whole": KeepWhole([torch.ops.aten.linear.default], decomposes=[HARDSWISH]),
    "resolve_device": Device("cpu"),
    "probe": Probe(),
}
for _name in hooks().keys() - vars(Recorder).keys():
    setattr(Recorder, _name, recording(_name, ANSWERS.get(_name)))


def test_the_guide_tells_the_life_of_a_plugin_in_the_order_of_the_hooks(tmp_path):
    rows = documents.rows(GUIDE, "| | hook | called | None means |")
    told = [name.strip("`") for _, name, *_ in rows]
    assert sorted(told) == sorted(hooks())
    recorder = Recorder()
    lowerer = Lowerer([recorder], cache=tmp_path / "cache")
    net = nn.Sequential(nn.Linear(4, 4), nn.Hardswish())
    lowered = lowerer.lower(net, (torch.ones(2, 4),))
    path = lowered.save(tmp_path / "net.pte")
    check(path, plugins=lowerer.plugins)
    lowered.verify(path=path)
    plugin_schemes(lowerer.plugins)
    assert list(dict.fromkeys(recorder.called)) == told
    # This program has one method, one partition and one delegate.
    once = [name.strip("`") for _, name, called, _ in rows if called.startswith("once")]
    assert [name for name in once if recorder.called.count(name) != 1] == []


def test_the_guide_has_the_hosts_reason_codes():
    rows = documents.rows(GUIDE, "| code | what it says |")
    assert [code for code, _ in rows] == [f"`{reason.code}`" for reason in reasons.HOST_REASONS]


def test_the_guide_has_the_contract_of_the_kit_as_it_is():
    rows = documents.rows(GUIDE, "| check | what the contract wants |")
    assert rows == [[f"`{check.name}`", check.wants] for check in CHECKS]


@pytest.mark.parametrize("kind", [Claim, Group, Refusal, KeepWhole], ids=lambda kind: kind.__name__)
def test_the_guide_shows_every_field_of_a_claim(kind):
    text = "\n".join(block.text for block in blocks(GUIDE, "python"))
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    own = [call for call in calls if ast.unparse(call.func) == kind.__name__]
    names = [field.name for field in attrs.fields(kind)]
    given = {word.arg for call in own for word in call.keywords}
    given |= {name for call in own for name, _ in zip(names, call.args, strict=False)}
    assert given == set(names)


def test_the_guide_names_what_a_plugin_may_import():
    rows = documents.rows(GUIDE, "| name | what it gives |")
    assert sorted(name.strip("`") for name, _ in rows) == sorted(etdev.graph.__all__)


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere(document):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text())
    assert links
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_document_are_in_a_language_that_is_tested(document):
    assert {block.language for block in blocks(document)} <= set(documents.LANGUAGES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_of_a_document_runs(document, desk):
    (desk / "registry.toml").write_text("[plugins.cpu]\n")
    module, example = Net(), torch.ones(2, 4)
    program = torch.export.export(module, (example,))
    space = {"module": module, "example": example, "program": program}
    for block in blocks(document, "python"):
        code = "\n" * (block.line - 1) + block.text
        exec(compile(code, str(document), "exec"), space)
    if document == README:
        assert space["lowered"].plan["forward"].ledger.owned()["cpu"]
        assert Path("model.pte").is_file()


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.title)
def test_the_toml_of_a_document_is_valid(block):
    if block.file == "pyproject.toml":
        groups = {discovery.GROUP, *extensions.EXTRAS}
        assert groups.issuperset(tomllib.loads(block.text)["project"]["entry-points"])
    else:
        assert registry.parse(block.text, block.document).names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_run(document, desk):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if document == README:
        (desk / "registry.toml").write_text("[plugins.cpu]\n")
    runner = CliRunner()
    for command in documents.commands(document):
        command, _, file = command.partition(" > ")
        program, *words = shlex.split(command)
        # A test of what is printed needs no more than the untuned plan.
        words = ["1s" if word == "20s" else word for word in words]
        assert program in ("etdev", "git", "make", "pip"), command
        if program == "make":
            assert set(words) <= set(targets), command
        elif program == "etdev":
            result = runner.invoke(main, words)
            assert result.exit_code == 0, f"{command}\n{result.output}"
            if file:
                Path(file).write_text(result.stdout)


def test_the_readme_shows_every_command():
    named = {line.split()[1] for line in documents.commands(README) if line.startswith("etdev ")}
    assert named == {*COMMANDS, "tune"}


def test_the_page_on_integration_has_the_schema_of_every_document():
    rows = documents.rows(INTEGRATION, "| command | schema | version | its other keys |")
    assert sorted((schema.strip("`"), int(version)) for _, schema, version, _ in rows) == sorted(
        (document.name, document.version) for document in (*DOCUMENTS_PRINTED, TUNING, APP, SIZE)
    )
    named = {word.split()[1] for row in rows for word in re.findall(r"`(etdev [^`]+)`", row[0])}
    assert named == {*COMMANDS, "tune", "size"}


def test_the_command_and_the_view_of_the_guide_work(desk):
    entries = [block for block in TOML if "etdev.commands" in block.text]
    declared = tomllib.loads(entries[0].text)["project"]["entry-points"]
    describe(desk, "etdev-devices", declared)
    plan = "plan net.py:model --plugin cpu --json --view devices=devices.txt"
    Path("plan.json").write_text(CliRunner().invoke(main, plan.split()).stdout)
    assert Path("devices.txt").read_text() == "net.py:model\ncpu_0 cpu\n"
    done = CliRunner().invoke(main, ["devices", "plan.json"])
    assert (done.exit_code, done.stdout) == (0, "forward cpu\n")


def test_the_application_of_the_guide_counts_delegates(desk):
    (block,) = (block for block in blocks(GUIDE, "python") if block.file == "etdev_shares.py")
    space: dict = {}
    exec(block.text, space)
    words = ["net.py:model", "--plugin", "cpu", "--json"]
    done = CliRunner().invoke(space["command"], words)
    assert json.loads(done.stdout) == {
        **{"schema": "etdev.shares", "version": 1},
        "methods": {"forward": 1},
    }


def test_the_guide_names_what_a_view_is_given():
    rows = documents.rows(GUIDE, "| attribute | what it is |")
    assert [name.strip("`") for name, _ in rows] == [a.name for a in attrs.fields(Viewed)]


@pytest.mark.suite
def test_the_tests_of_the_guide_pass(desk):
    # All of the kit is run on a plugin like this one by unit/testing/test_sins.py.
    some = ("-k", "not contract or claims or reasons or dtypes")
    options = (*some, "-q", "-c", os.devnull, f"--rootdir={desk}", "-p", "no:cacheprovider")
    assert pytest.main([*options, str(desk / "tests")]) == pytest.ExitCode.OK


def test_the_registry_explains_itself_with_an_example_that_is_valid():
    path = registry.default_path()
    lines = [line for line in path.read_text().splitlines() if line.startswith("#   ")]
    example = registry.parse("\n".join(line.removeprefix("#   ") for line in lines), path)
    assert example.names == ("trt", "vulkan")
    assert example.strict
    assert example.pins
    assert example.budget


class Add(nn.Module):
    """An addition, and one more of its result."""

    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y):
        once = torch.add(x, y, alpha=self.alpha)
        return torch.add(once, y, alpha=self.alpha)


def adder():
    """The plugin of the README."""
    (block,) = [block for block in blocks(README, "python") if "class Adder" in block.text]
    assert len([line for line in block.text.splitlines() if line]) <= 20
    space: dict = {}
    exec(block.text, space)
    return space["Adder"]()


def numbers(dtype, *shape):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 - 2).to(dtype)


FLOAT32 = torch.float32
PAIRS = {
    **{
        str(dtype).removeprefix("torch."): (numbers(dtype, 2, 4), numbers(dtype, 2, 4))
        for dtype in (
            *(FLOAT32, torch.float64, torch.float16, torch.bfloat16),
            *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
        )
    },
    "float32 and int64": (numbers(FLOAT32, 2, 4), numbers(torch.int64, 2, 4)),
    "broadcast": (numbers(FLOAT32, 2, 1, 4), numbers(FLOAT32, 3, 1)),
    "scalar": (numbers(FLOAT32, 2, 4), numbers(FLOAT32)),
    "empty": (numbers(FLOAT32, 0, 4), numbers(FLOAT32, 0, 4)),
    "6 dimensions": (numbers(FLOAT32, 1, 2, 1, 2, 1, 2), numbers(FLOAT32, 2, 1, 1, 1, 2, 1)),
    "7 dimensions": (numbers(FLOAT32, 1, 2, 1, 2, 1, 2, 1), numbers(FLOAT32, 2)),
}


@pytest.mark.slice("3")
@pytest.mark.parametrize("alpha", [1, 3])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_plugin_of_the_readme_adds_as_pytorch_does(pair, alpha):
    model, inputs = Add(alpha), PAIRS[pair]
    assert_agrees(Lowerer([adder()]).lower(model, inputs), model, inputs)


@pytest.mark.parametrize("alpha", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_plugin_of_the_readme_takes_float32_without_alpha(dtype, alpha):
    inputs = (numbers(dtype, 2, 4), numbers(dtype, 2, 4))
    owned = Lowerer([adder()]).plan(Add(alpha), inputs)["forward"].ledger.owned()
    mine = dtype == torch.float32 and alpha == 1
    assert owned == {"adder" if mine else "portable": 2}


def test_the_plugin_of_the_readme_takes_the_additions():
    plan = Lowerer([adder(), "cpu"]).plan(Net(), (torch.randn(2, 4),))
    assert plan["forward"].owner("aten_add_tensor") == "adder"
