"""The JSON of `etdev tune`, whose shape changes with its version only."""

from __future__ import annotations

import json
from pathlib import Path

from etdev_tune.finish import _verdict
from etdev_tune.report import TUNING, Confirmation, Estimate, Limits, Report, Sensitivity, Trial
from support.shell import succeeds
from support.shell.outlines import outline

from etdev import Pin
from etdev.schema.structuring import CONVERTER

ESTIMATE = Estimate(0.5, 0.4, 0.6)
REPORT = Report(
    program="tuned.pte",
    chosen="cpu alone",
    verdict="cpu alone: nothing that was tried is better",
    objective="latency",
    limits=Limits(1e-3, 0.9, 100),
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
    trials=(
        Trial(
            "untuned",
            "failed",
            "crash",
            options={"cpu": {"per_op": True}},
            pins=(Pin("cpu", op="*"),),
        ),
        Trial(
            "cpu alone",
            "ran",
            plugins=("cpu",),
            memory_bytes=1,
            error=1e-6,
            predicted_error=1e-6,
            metric=0.5,
            predicted_ms=0.5,
            latency_ms=ESTIMATE,
            against_untuned=ESTIMATE,
        ),
    ),
    confirmation=Confirmation("cpu alone", "untuned", ESTIMATE, 8, True),
    calibrated=2,
    metric=0.5,
    sensitivities=(Sensitivity("head", "8da8w", 1e-3, 2e-3),),
    weights={"forward": 1.0},
)
GOLDEN = Path(__file__).parent / "documents.txt"


def test_the_document_has_the_shape_of_its_version(here):
    text = json.dumps(TUNING.stamped(CONVERTER.unstructure(REPORT)))
    (here / "tuned.tuning.json").write_text(text)
    document = json.loads(succeeds("tune -o tuned.pte --show --json"))
    assert list(document)[:2] == ["schema", "version"]
    assert outline("tune", document) + "\n" == GOLDEN.read_text(), "raise the version"
    assert document["schema"] == TUNING.name


def test_nothing_is_better_only_where_something_else_ran():
    chosen, failed = Trial("untuned", "ran"), Trial("other", "failed")
    assert _verdict("untuned", None, True, [chosen, failed]) == "untuned: nothing else ran right"
    ran = Trial("other", "ran")
    assert _verdict("untuned", None, True, [chosen, ran]).endswith("that was tried is better")
