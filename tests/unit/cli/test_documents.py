"""JSON documents: every command prints one, whose shape changes with its version only."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from support.models import nets
from support.shell import MLP, invoke
from support.shell.outlines import outline

from etdev import Lowerer, Pin
from etdev.cli import results
from etdev.cli.main import COMMANDS
from etdev.schema.documents import DOCUMENTS

GOLDEN = Path(__file__).parent / "documents.txt"


@pytest.fixture
def printed(mlp_lowered, mlp_pte, here) -> dict[str, dict]:
    """What each command prints about the MLP."""
    mlp_lowered.save(here / "with.pte", with_ledger=True)
    pinned = Lowerer(["cpu"], pins=[Pin("portable", op="aten.relu.*")]).plan(*nets.mlp())
    (here / "one.json").write_text(mlp_lowered.plan.to_json())
    (here / "two.json").write_text(pinned.to_json())
    lines = {
        "plan": f"plan {MLP} --plugin cpu --json --pin op=aten.relu.*:plugin=portable",
        "explain": "explain two.json --op aten.* --json",
        "diff": "diff one.json two.json --json",
        "lower": f"lower {MLP} -o net.pte --plugin cpu --verify 1 --json --cache kept",
        "run": f"run {mlp_pte} --check {MLP} --bisect --plugin cpu --steps 1 --json",
        "inspect": "inspect with.pte --json",
        "check": f"check {mlp_pte} --json",
        "plugins": "plugins --json",
        "cache": "cache info --json --cache kept",
        "quirks": "quirks --json",
        "docs": "docs --json",
        "docs registry": "docs registry --json",
        "new": "new plugin my-npu --json",
        "new guide": "new guide --json",
    }
    assert {line.split()[0] for line in lines} == set(COMMANDS)
    done = {name: invoke(line) for name, line in lines.items()}
    assert {name for name, result in done.items() if result.exit_code} == {"diff"}
    return {name: json.loads(result.stdout) for name, result in done.items()}


def test_every_document_has_the_shape_of_its_version(printed, request):
    texts = []
    for name, document in printed.items():
        assert next(iter(document)) == "schema"
        texts.append(outline(name, document))
    text = "\n\n".join(texts) + "\n"
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "write it anew with --rewrite, and raise the version"
    assert {d["schema"] for d in printed.values()} == {document.name for document in DOCUMENTS}


def test_numbers_that_json_has_not_are_text(capsys):
    results.document({"values": [math.nan, math.inf, -math.inf, 1.5]})
    assert json.loads(capsys.readouterr().out) == {"values": ["nan", "inf", "-inf", 1.5]}
