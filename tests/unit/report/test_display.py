"""Plans and differences in a notebook, in rich, and on one line."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import pytest
from rich.console import Console
from support.models import nets

from etdev import Lowerer, Pin, Plan, diff
from etdev.schema.plan import MethodPlan


class Strict(HTMLParser):
    """Reads text, and refuses tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "style", "link")
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def html_text(text: str) -> str:
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    return parser.text


def rich_text(value: object) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(value)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def values(mlp_lowered):
    pinned = Lowerer(["cpu"], pins=[Pin("portable", op="aten.[r]elu.*")]).plan(*nets.mlp())
    return {
        "plan": pinned,
        "method": pinned["forward"],
        "lowered": mlp_lowered,
        "difference": diff(mlp_lowered.plan, pinned),
    }


def test_each_is_one_short_line(values):
    assert {name: repr(value) for name, value in values.items()} == {
        "plan": "<Plan forward: 2 delegates, cpu 2, portable 2>",
        "method": "<MethodPlan forward: 2 delegates, cpu 2, portable 2>",
        "lowered": "<Lowered forward: 2 delegates, cpu 3, portable 1>",
        "difference": "<Difference nodes 1, parts 2, figures 3>",
    }


@pytest.mark.parametrize("name", ["plan", "method", "lowered", "difference"])
def test_each_is_tables_in_a_notebook_and_in_rich(values, name):
    value = values[name]
    html, text = html_text(value._repr_html_()), rich_text(value)
    expected = {"difference": "aten_relu_default"}.get(name, "XnnpackBackend")
    assert expected in html
    assert expected in text


def test_what_looks_like_markup_is_shown_as_it_is(values):
    pin = "op=aten.[r]elu.*:plugin=portable"
    assert pin in html_text(values["plan"]._repr_html_())
    assert pin in rich_text(values["plan"])
    plan = Plan((MethodPlan("<b>", (), (), (), (), values["method"].ledger),))
    assert "method <b>" in html_text(plan._repr_html_())


@pytest.mark.parametrize("width", [30, 60, 80])
def test_a_table_fits_the_terminal_and_tears_no_name(values, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(values["plan"])
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert {"XnnpackBackend", "aten.relu.default"} <= words
