"""tests/README.md names a file for each promise, and for each headline of the README."""

import re

import pytest
from support import documents
from support.documents import ROOT

from etdev.cli.main import COMMANDS

PAGE = ROOT / "tests/README.md"
PROMISES = documents.rows(PAGE, "| promise | tests |")
HEADLINES = documents.rows(PAGE, "| headline | tests |")


def files(cell):
    """The files that a row names, below `tests` or from the root."""
    paths = re.findall(r"`([\w/-]+\.\w+)`", cell)
    return [ROOT / (path if path.startswith("plugins/") else f"tests/{path}") for path in paths]


@pytest.mark.parametrize(("promise", "tests"), PROMISES)
def test_each_promise_has_files(promise, tests):
    assert files(tests)
    assert [file for file in files(tests) if not file.is_file()] == []


@pytest.mark.parametrize(("headline", "tests"), HEADLINES)
def test_each_headline_is_in_the_file_that_is_said_to_test_it(headline, tests):
    (file,) = files(tests)
    word = headline.rstrip("`").rpartition("`")[2].split()[-1]
    assert word in file.read_text("utf-8")


@pytest.mark.parametrize("plugin", ["etdev-cuda", "etdev-trt"])
def test_each_test_that_a_readme_names_is_there(plugin):
    named = re.findall(
        r"`(test_\w+)`", (ROOT / "plugins" / plugin / "README.md").read_text("utf-8")
    )
    files = [*ROOT.glob("tests/*/**/test_*.py"), *ROOT.glob("plugins/*/tests/test_*.py")]
    there = {n for file in files for n in re.findall(r"def (test_\w+)\(", file.read_text("utf-8"))}
    assert len(named) > 10
    assert {*named} <= there


def test_each_command_has_a_row():
    named = {headline.split()[1].strip("`") for headline, _ in HEADLINES if "etdev " in headline}
    assert named >= {*COMMANDS, "tune", "size"}


def test_each_file_of_behaviour_has_a_promise_or_a_page():
    """Those without a row hold a document, a tool or a type against what is there."""
    named = {file.name for _, tests in (*PROMISES, *HEADLINES) for file in files(tests)}
    others = {path.name for path in (ROOT / "tests/behaviour").glob("test_*.py")} - named
    assert others == {
        *("test_inspector.py", "test_integration.py", "test_memory.py", "test_model_explorer.py"),
        *("test_nesting.py", "test_partitioners.py", "test_promises.py"),
        *("test_symbols.py", "test_types.py"),
    }
