"""The corpus gives the same record twice, and names what differs between two records."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.corpus.__main__ import main
from support.corpus.differences import differences

TESTS = Path(__file__).parents[1]
CASES = (
    *("zoo.state.counter | portable", "zoo.aliases.input_written | cpu"),
    *("matrix.mlp | openvino exact, cpu", "matrix.mlp | plan, cuda, cpu"),
)
BEFORE = {
    "same": {"files": {"model.pte": f"{'a' * 64} 10 bytes"}},
    "bytes": {"files": {"model.pte": f"{'a' * 64} 10 bytes"}},
    "file": {"files": {"model.pte": f"{'a' * 64} 10 bytes"}},
    "plan": {"plan": "a" * 64},
    "refused": {"plan": "a" * 64},
    "taken": {"error": "LoweringError", "text": "no"},
    "class": {"error": "LoweringError", "text": "no"},
    "text": {"error": "LoweringError", "text": "no"},
    "warned": {"plan": "a" * 64},
    "old": {"plan": "a" * 64},
}
AFTER = {
    "same": {"files": {"model.pte": f"{'a' * 64} 10 bytes"}},
    "bytes": {"files": {"model.pte": f"{'b' * 64} 12 bytes"}},
    "file": {"files": dict.fromkeys(("model.ptd", "model.pte"), f"{'a' * 64} 10 bytes")},
    "plan": {"plan": "b" * 64},
    "refused": {"error": "ClaimError", "text": "nobody"},
    "taken": {"plan": "a" * 64},
    "class": {"error": "ClaimError", "text": "no"},
    "text": {"error": "LoweringError", "text": "never"},
    "warned": {"plan": "a" * 64, "warnings": ["beware"]},
    "new": {"plan": "a" * 64},
}
KINDS = {
    "bytes": "bytes",
    "file": "bytes",
    "plan": "plan",
    "refused": "refused now",
    "taken": "no longer refused",
    "class": "error class",
    "text": "error text",
    "warned": "warnings",
    "old": "only before",
    "new": "only after",
}


@pytest.fixture
def records(tmp_path):
    """Two records as files."""
    for name, cases in (("before", BEFORE), ("after", AFTER)):
        record = {"versions": {"torch": name}, "cases": cases}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    return [str(tmp_path / f"{name}.json") for name in ("before", "after")]


# Two interpreters, because sets are in another order in each.
@pytest.mark.suite
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the corpus forks a process for each case")
def test_two_runs_give_the_same_record(tmp_path):
    texts = []
    for seed in ("1", "2"):
        record = tmp_path / f"{seed}.json"
        environ = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "support.corpus", "digest", str(record), "--only", *CASES]
        subprocess.run(command, check=True, env=environ, capture_output=True)
        texts.append(record.read_text())
    assert texts[0] == texts[1]
    cases = json.loads(texts[0])["cases"]
    assert cases.keys() == {*CASES}
    assert cases["zoo.aliases.input_written | cpu"]["error"] == "LoweringError"
    assert cases["zoo.state.counter | portable"]["files"].keys() == {"model.pte"}


def test_each_difference_has_its_kind():
    found = {each.key: each.kind for each in differences(BEFORE, AFTER)}
    assert found == KINDS


def test_texts_can_be_left_out():
    found = {each.key for each in differences(BEFORE, AFTER, texts=False)}
    assert found == KINDS.keys() - {"text", "warned"}


def test_comparing_no_case_fails(records):
    assert main(["compare", *records, "--only", "nowhere.*"]) == 2


def test_compare_prints_differences_and_fails(records, capsys):
    assert main(["compare", *records, "--only", "bytes", "refused", "same"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "note: torch is before before and after after",
        "bytes: bytes",
        "  before  model.pte aaaaaaaaaaaa 10 bytes",
        "  after   model.pte bbbbbbbbbbbb 12 bytes",
        "refused now: refused",
        "  before  plan aaaaaaaaaaaa",
        "  after   ClaimError: nobody",
        "3 cases before, 3 after: 1 unchanged, 1 bytes, 1 refused now",
    ]


def test_compare_succeeds_without_differences(records, capsys):
    assert main(["compare", records[0], records[0]]) == 0
    assert capsys.readouterr().out == "10 cases before, 10 after: 10 unchanged\n"
