"""plugins/INTEGRATION.md: each of its recipes runs, where its tool is installed."""

import ast
import os
import shlex
import sys
from importlib.metadata import version
from itertools import groupby
from types import ModuleType

import pytest
from click.testing import CliRunner
from support.documents import INTEGRATION, blocks

from etdev.cli.main import main

# What `etdev` itself needs is always there.
OWN = {"etdev", "executorch", "torch"}


def headings():
    """The title of the section that each line is in."""
    title, titles = "", []
    for line in INTEGRATION.read_text().splitlines():
        title = line.removeprefix("## ") if line.startswith("## ") else title
        titles.append(title)
    return titles


TITLES = headings()
SECTIONS = {
    title: list(section)
    for title, section in groupby(
        blocks(INTEGRATION, "python", "sh"), lambda block: TITLES[block.line - 1]
    )
}
FIRST = SECTIONS.pop("")


def tools(block):
    """The packages that a block imports besides what is always there."""
    nodes = list(ast.walk(ast.parse(block.text)))
    names = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    return sorted({name.partition(".")[0] for name in names} - OWN)


# Models of other packages take longest; they run with `make suites`.
LONG = ("torchao", "transformers", "transformers.exporters", "LLMEdgeManager")


@pytest.mark.parametrize(
    "title", [pytest.param(t, marks=[pytest.mark.suite] * (t in LONG)) for t in SECTIONS]
)
def test_a_recipe_runs(title, tmp_path, monkeypatch):
    if title == "Inspector" and version("executorch") < "1.5":
        pytest.skip("the runtime of ExecuTorch 1.4's wheel writes no trace")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "registry.toml").write_text("[plugins.cpu]\n")
    monkeypatch.setenv("ETDEV_CACHE", os.fspath(tmp_path / "cache"))
    # torch looks for the module of what it traces.
    recipe = ModuleType("recipe")
    monkeypatch.setitem(sys.modules, "recipe", recipe)
    for block in [*FIRST, *SECTIONS[title]]:
        if block.language == "sh":
            for line in block.text.splitlines():
                program, *words = shlex.split(line)
                done = CliRunner().invoke(main, words)
                assert (program, done.exit_code) == ("etdev", 0), done.output
        else:
            for tool in tools(block):
                pytest.importorskip(tool, reason=f"{tool} is not installed")
            if "model_explorer" in tools(block):
                # It would open a browser.
                monkeypatch.setattr("model_explorer.visualize_from_config", lambda config: None)
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(INTEGRATION), "exec"), vars(recipe))
    files = {path.suffix for path in tmp_path.rglob("*")}
    assert ".json" in files if "Model Explorer" in title else ".pte" in files


def test_every_tool_of_the_table_has_a_section():
    text = INTEGRATION.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len(SECTIONS)
