"""Commands and views of other distributions: found, listed, and named where they can't be used."""

from __future__ import annotations

import sys

import pytest
from support.shell import MLP, cells, fails, invoke, succeeds
from support.shell.distributions import put

GREET = """
import click

@click.command("greet")
@click.argument("name")
def command(name):
    "Greet somebody."
    print(f"Hello, {name}!")
"""
OUTLINE = """
def check(file):
    if file.suffix != ".txt":
        raise ValueError(f"{file} is no text")

def write(file, viewed):
    stages = ", ".join(viewed.stages)
    plugins = ", ".join(name for name, _ in viewed.plan.plugins)
    held = viewed.artifact.size_bytes > 0 if viewed.artifact else None
    file.write_text(f"{viewed.title}|{plugins}|{held}|{bool(viewed.profile)}|{viewed.note}|{stages}")
"""


@pytest.fixture
def add(here, monkeypatch):
    """Install a distribution of one module with one entry point."""
    monkeypatch.syspath_prepend(here / "site")
    (here / "site").mkdir()
    monkeypatch.delenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    modules = []

    def added(name, group, entry, source, value="{module}:command"):
        put(here / "site", name, source, {f"etdev.{group}": {entry: value}})
        modules.append(name.replace("-", "_"))

    yield added
    for module in modules:
        sys.modules.pop(module, None)


def listed() -> list[str]:
    return cells(succeeds("--help"))


def test_a_command_of_another_distribution_is_listed_and_runs(add):
    add("npu-tools", "commands", "greet", GREET)
    assert "greet Greet somebody." in listed()
    assert succeeds("greet Ada") == "Hello, Ada!\n"
    assert "Greet somebody." in succeeds("greet --help")


@pytest.mark.parametrize(
    ("source", "value", "problem"),
    [
        ("import gone", "{module}:command",
         "import failed with ModuleNotFoundError: No module named 'gone'; "
         "reinstall or uninstall it"),
        ("raise SystemExit(3)", "{module}:command",
         "import failed with SystemExit: 3; reinstall or uninstall it"),
        ("command = 'greet'", "{module}:command",
         "npu_tools:command is a str, not a click command; uninstall it"),
        ("", "a thing", "import failed with AttributeError: 'NoneType' object has no attribute "
         "'group'; reinstall or uninstall it"),
    ],
)  # fmt: skip
def test_a_broken_command_is_named_and_breaks_no_other(add, source, value, problem):
    add("npu-tools", "commands", "greet", source, value)
    add("others", "commands", "wave", GREET)
    text = " ".join(listed())
    assert f"greet can't be used: {problem}" in text
    assert "wave Greet somebody." in listed()
    for words in ("greet Ada", "greet --help"):
        assert fails(words) == f"greet (npu-tools 1.0): {problem}"
    assert succeeds("wave Ada") == "Hello, Ada!\n"


def test_a_command_can_not_take_the_name_of_one_of_etdevs(add):
    add("npu-tools", "commands", "cache", GREET)
    assert "cache Show and clear the compile cache." in listed()
    assert "Show and clear the compile cache." in succeeds("cache --help")


def test_a_command_of_two_distributions_is_refused(add):
    add("npu-tools", "commands", "greet", GREET)
    add("gpu-tools", "commands", "greet", GREET)
    assert fails("greet Ada") == (
        "greet: is offered by gpu-tools and npu-tools; uninstall one of them"
    )
    assert "greet can't be used: is offered by gpu-tools" in " ".join(listed())


def test_without_autoload_a_command_is_imported_where_it_is_named_alone(add, monkeypatch):
    add("npu-tools", "commands", "greet", GREET)
    monkeypatch.setenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert "greet" not in succeeds("--help")
    assert "npu_tools" not in sys.modules
    assert succeeds("greet Ada") == "Hello, Ada!\n"


def test_a_view_of_another_distribution_is_given_what_the_command_knows(
    add, here, mlp_lowered, mlp_pte
):
    add("npu-views", "views", "outline", OUTLINE, "{module}")
    mlp_lowered.save(here / "with.pte", with_ledger=True)
    succeeds(f"plan {MLP} --plugin cpu --view outline=plan.txt")
    succeeds(f"lower {MLP} -o net.pte --plugin cpu --view outline=lower.txt")
    succeeds("inspect with.pte --view outline=inspect.txt")
    succeeds(f"inspect {mlp_pte} --view outline=bare.txt")
    told = {name: (here / f"{name}.txt").read_text().split("|") for name in
            ("plan", "lower", "inspect", "bare")}  # fmt: skip
    assert told["plan"] == [MLP, "cpu, portable", "None", "False", "", ""]
    assert told["lower"][:4] == ["net.pte", "cpu, portable", "True", "False"]
    assert {"export", "to edge", "plan", "compile", "emit"} <= set(told["lower"][5].split(", "))
    assert told["inspect"] == ["with.pte", "cpu, portable", "True", "False", "", ""]
    assert told["bare"][4].startswith("The file has no ledger")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--view sketch=a.txt", "sketch: not installed; installed are "),
        ("--view outline=a.pdf",
         "view 'outline': it raised ValueError: a.pdf is no text; report it to its author"),
        ("--view half=a.txt",
         "half (half-views 1.0): half_views is not a view: it has no write; uninstall it"),
    ],
)  # fmt: skip
def test_a_view_that_can_not_be_had_ends_the_command_before_it_begins(add, words, message):
    add("npu-views", "views", "outline", OUTLINE, "{module}")
    add("half-views", "views", "half", "def check(file): ...", "{module}")
    assert fails(f"plan nets.py:model {words}").startswith("nets.py:model: there is no file")
    assert fails(f"plan {MLP} {words}").startswith(message)
    assert fails(f"inspect gone.pte {words}").startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--view outline", "'outline' is not NAME=FILE"),
        ("--view =a.txt", "'=a.txt' is not NAME=FILE"),
        ("--html a.html --view html=b.html", "give one file for each view"),
    ],
)
def test_views_that_make_no_sense_are_wrong_usage(here, words, message):
    done = invoke(f"plan {MLP} {words}")
    assert done.exit_code == 2
    assert message in done.stderr
