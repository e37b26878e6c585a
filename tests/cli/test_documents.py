"""JSON documents: every command prints one, whose shape changes with its version only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from models import nets
from shell import MLP, invoke

from etdev import Lowerer, Pin
from etdev.cli import results
from etdev.cli.main import COMMANDS
from etdev.schema.documents import DOCUMENTS
from etdev.schema.tuning import Confirmation, Estimate, Move, Report, Trial
from etdev.tuning.outputs import report_text

ESTIMATE = Estimate(0.5, 0.4, 0.6)
REPORT = Report(
    program="tuned.pte",
    chosen="cpu alone",
    verdict="cpu alone: nothing that was tried is better",
    objective="latency",
    tolerance=1e-3,
    target="local",
    fingerprint={"cpu": "a CPU"},
    threads=1,
    calls=3,
    timed=1,
    budget_s=60.0,
    seconds=30.0,
    finished=True,
    measured=12,
    reused=1,
    disturbed=1,
    notes=("1 of 12 measurements were disturbed",),
    trials=(
        Trial("untuned", "failed", "crash", options={"cpu": {"per_op": "true"}}, pins=("op=*",)),
        Trial(
            "cpu alone",
            "ran",
            plugins=("cpu",),
            limits={"cpu": "min_nodes=3"},
            memory_bytes=1,
            error=1e-6,
            latency_ms=ESTIMATE,
            against_untuned=ESTIMATE,
        ),
    ),
    moves=(Move("per_op=true", "cpu alone", False, "not taken", 0.9, ESTIMATE),),
    confirmation=Confirmation("cpu alone", "untuned", ESTIMATE, 8, True),
)
GOLDEN = Path(__file__).parent / "documents.txt"
# Mappings whose keys are names, not fields.
FREE = ("owned", "kernels", "stages", "before", "after", "fingerprint", "options", "limits")


@pytest.fixture
def printed(mlp_lowered, mlp_pte, here) -> dict[str, dict]:
    """What each command prints about the MLP."""
    mlp_lowered.save(here / "with.pte", with_ledger=True)
    pinned = Lowerer(["cpu"], pins=[Pin("portable", op="aten.relu.*")]).plan(*nets.mlp())
    (here / "one.json").write_text(mlp_lowered.plan.to_json())
    (here / "two.json").write_text(pinned.to_json())
    (here / "tuned.tuning.json").write_text(report_text(REPORT))
    lines = {
        "plan": f"plan {MLP} --plugin cpu --json --pin op=aten.relu.*:plugin=portable",
        "explain": "explain two.json --op aten.* --json",
        "diff": "diff one.json two.json --json",
        "lower": f"lower {MLP} -o net.pte --plugin cpu --verify 1 --json --cache kept",
        "tune": "tune -o tuned.pte --show --json",
        "run": f"run {mlp_pte} --check {MLP} --bisect --plugin cpu --steps 1 --json",
        "inspect": "inspect with.pte --json",
        "check": f"check {mlp_pte} --json",
        "plugins": "plugins --json",
        "cache": "cache info --json --cache kept",
        "new": "new plugin my-npu --json",
        "new guide": "new guide --json",
    }
    assert {line.split()[0] for line in lines} == set(COMMANDS)
    done = {name: invoke(line) for name, line in lines.items()}
    assert {name for name, result in done.items() if result.exit_code} == {"diff"}
    return {name: json.loads(result.stdout) for name, result in done.items()}


def outline(value: object, path: str = "") -> Iterator[str]:
    """The paths of all fields, with the kinds of their values."""
    if isinstance(value, dict) and value:
        free = path.rpartition(".")[2].rstrip("[]") in FREE
        for key, item in value.items():
            yield from outline(item, f"{path}.{'*' if free else key}".lstrip("."))
    elif isinstance(value, list) and value:
        for item in value:
            yield from outline(item, f"{path}[]")
    else:
        kinds = {dict: "empty", list: "empty", type(None): "null"}
        yield f"{path} {kinds.get(type(value), type(value).__name__)}"


def test_every_document_has_the_shape_of_its_version(printed, request):
    texts = []
    for name, document in printed.items():
        assert next(iter(document)) == "schema"
        lines = sorted(set(outline({k: v for k, v in document.items() if k != "version"})))
        texts.append("\n".join([f"{name}: {document['schema']} {document['version']}", *lines]))
    text = "\n\n".join(texts) + "\n"
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "write it anew with --rewrite, and raise the version"
    assert {d["schema"] for d in printed.values()} == {document.name for document in DOCUMENTS}


def test_numbers_that_json_has_not_are_text(capsys):
    results.document({"values": [math.nan, math.inf, -math.inf, 1.5]})
    assert json.loads(capsys.readouterr().out) == {"values": ["nan", "inf", "-inf", 1.5]}
