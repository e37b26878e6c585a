"""`etdev docs`: every document, from a checkout as from a wheel."""

from __future__ import annotations

import json

import pytest
from support.documents import GUIDE, ROOT
from support.shell import fails, succeeds


def test_every_document_of_the_checkout_is_a_topic():
    rows = json.loads(succeeds("docs --json"))["topics"]
    topics = {row["topic"]: row["about"] for row in rows}
    files = {path.stem.lower() for path in ROOT.glob("plugins/*.md")} - {"readme"}
    assert files | {"plugin", "registry", "etdev", "etdev-cpu", "etdev-page", "etdev-llm"} <= {
        *topics
    }
    assert all(topics.values())


@pytest.mark.parametrize(
    ("topic", "path"),
    [("plugin", GUIDE), ("registry", ROOT / "registry.toml")],
)
def test_a_topic_is_printed_as_it_is_written(topic, path):
    assert succeeds(f"docs {topic}").strip() == path.read_text("utf-8").strip()


@pytest.mark.parametrize(("topic", "head"), [("cpu", "# etdev-cpu"), ("etdev", "# etdev")])
def test_a_distribution_has_its_readme(topic, head):
    assert succeeds(f"docs {topic}").startswith(head)


def test_a_misspelt_topic_is_corrected():
    assert fails("docs registri") == "registri: is not a topic; did you mean registry?"
