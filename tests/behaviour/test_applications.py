"""Applications import of etdev only its facade, which is what the guide says it is."""

import ast
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from support import documents
from support.documents import GUIDE

import etdev.app
import etdev.app.options

PLUGINS = Path(__file__).parents[2] / "plugins"
APPLICATIONS = ("cpp", "llm", "page", "reduce", "tune")
# Modules that the guide names beside the facade; plugins may import the first row.
DOCUMENTED = {
    *("etdev", "etdev.app", "etdev.errors", "etdev.graph", "etdev.quirks"),
    *("etdev.cli.viewing", "etdev.pte.artifact", "etdev.report.explanation"),
    *("etdev.runtime.child", "etdev.runtime.ending", "etdev.runtime.loading"),
    *("etdev.runtime.runners", "etdev.schema.dtypes", "etdev.schema.ledger"),
    *("etdev.schema.partition", "etdev.schema.pins", "etdev.schema.plan"),
    *("etdev.schema.profile", "etdev.schema.reasons", "etdev.schema.target"),
    *("etdev.upstream.shortcuts.decompositions", "etdev.verify.tolerance"),
}
HEADER = "| name of `etdev.app` | what it gives |"


def trees(name):
    files = sorted((PLUGINS / f"etdev-{name}" / f"etdev_{name}").rglob("*.py"))
    return {file.stem: ast.parse(file.read_text("utf-8")) for file in files}


def is_host(module):
    return module.partition(".")[0] == "etdev"


def imported(tree):
    """Yield module and name of each import of etdev, as `from module import name` has them."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "etdev"
        ):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield (inside, "") if inside in DOCUMENTED else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if name.split(".")[0] == "etdev")


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_imports_the_facade_and_what_the_guide_names(name):
    found = [(file, *one) for file, tree in trees(name).items() for one in imported(tree)]
    assert [one for one in found if one[1] not in DOCUMENTED] == []
    public = {"etdev": {*etdev.__all__, ""}, "etdev.app": {*etdev.app.__all__}}
    assert [one for one in found if one[2] not in public.get(one[1], {one[2]})] == []


def test_the_guide_names_the_modules_beside_the_facade():
    text = GUIDE.read_text("utf-8")
    section = text[text.index("## Writing an application") : text.index("## Adding a view")]
    named = set(re.findall(r"etdev(?:\.\w+)+", section))
    schema = re.search(r"from `etdev.schema`'s (.*),\n", section)[1]
    named |= {f"etdev.schema.{one}" for one in re.findall(r"`(\w+)`", schema)}
    assert {one for one in DOCUMENTED if one.count(".") > 1} <= named


def test_the_facade_is_what_the_guide_says_and_what_applications_import():
    names = [cell.strip("`*") for cell, *_ in documents.rows(GUIDE, HEADER)]
    assert sorted(names) == sorted(etdev.app.__all__)
    assert len(names) <= 15
    every = chain.from_iterable(trees(own).values() for own in APPLICATIONS)
    found = chain.from_iterable(map(imported, every))
    assert {name for module, name in found if module == "etdev.app"} == set(names)


@pytest.mark.parametrize("name", ["files", "options", "sources"])
def test_applications_use_of_a_module_what_the_guide_says(name):
    cells = [cell for cell, *_ in documents.rows(GUIDE, "| member | what it is |")]
    told = set(re.findall(rf"{name}\.(\w+)", " ".join(cells)))
    if name == "options":
        assert told == set(etdev.app.options.__all__)
    every = chain.from_iterable(trees(own).values() for own in APPLICATIONS)
    users = [tree for tree in every if ("etdev.app", name) in imported(tree)]
    used = {
        node.attr
        for node in chain.from_iterable(map(ast.walk, users))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name
    }
    assert told == used


def test_the_facade_loads_what_is_used_and_torch_with_the_names_in_italics():
    cells = [cell for cell, *_ in documents.rows(GUIDE, HEADER)]
    names = [cell.strip("`") for cell in cells if not cell.startswith("*")]
    code = f"""
import sys
import etdev.app
assert "etdev.cli" not in sys.modules
for name in {names}:
    getattr(etdev.app, name)
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
