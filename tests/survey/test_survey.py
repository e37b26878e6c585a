"""The zoo in all orders of plugins, judged by a runner that shares no code with etdev.

`make survey` judges all cells, the tests here three of them.
"""

import pytest
import torch
from support.emulator import emulated

from etdev import Lowerer
from etdev.errors import VerifyError
from etdev.runtime.child import ChildResult
from survey import cells, table
from survey.judge import Judge, Subject, compared, eager, in_double

pytest.importorskip("openvino", reason="openvino is not installed")

QUICK = [
    ("layers.clamped_in_six_ways", "partitioner"),
    ("sizes.convolution_pool_and_layer_over_a_batch", "cpu"),
    ("weights.read_as_it_is_and_transposed", "openvino, cpu"),
]


@pytest.fixture(scope="module")
def judge():
    judge = Judge()
    yield judge
    judge.process.close()


@pytest.mark.parametrize(("model", "order"), QUICK)
def test_a_model_is_as_in_pytorch_or_refused_by_name(judge, model, order):
    verdict = judge.verdict(cells.subject(model), order)
    assert verdict.kind == cells.EXPECTED.get((model, order), "right"), verdict.text


@pytest.mark.suite
@pytest.mark.parametrize(
    ("model", "order"),
    [cell for cell, kind in cells.EXPECTED.items() if kind == "wrong" and cell[1] != "partitioner"],
)
def test_what_a_judge_finds_wrong_is_refused_by_verify(model, order):
    subject = cells.subject(model)
    lowered = Lowerer(order.split(", ")).lower(subject.model, subject.calls[0])
    with pytest.raises(VerifyError):
        lowered.verify(subject.calls)


def test_a_judge_sees_what_is_wrong(judge):
    """Nothing is judged right that isn't, or that nobody looked at."""
    module, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
    subject = Subject(module, [(x,), (2 * x,)])
    (first, second) = eager(subject)
    assert compared([first, second], [first, second], subject).kind == "right"
    assert compared([first, first], [first, second], subject).kind == "wrong"
    nan = ([first[0][0] * torch.nan], first[1])
    assert compared([nan, second], [first, second], subject).kind == "wrong"
    assert compared([([], first[1])] * 2, [([], first[1])] * 2, subject).kind == "nothing"
    assert (
        compared([([first[0][0].double()], first[1]), second], [first, second], subject).kind
        == "wrong"
    )


def test_where_pytorch_rounds_halves_float64_decides():
    class Rounded(torch.nn.Module):
        def forward(self, x):
            return (x + 1024) - 1024

    x = torch.tensor([0.3, 0.4], dtype=torch.float16)
    subject = Subject(Rounded(), [(x,)])
    expected = eager(subject)
    assert compared([([x], [x])], expected, subject).kind == "wrong"
    assert in_double([([x], [x])], expected, subject).kind == "right"
    assert in_double([([x * 2], [x])], expected, subject).kind == "unstable"
    assert in_double([([x * 4], [x])], expected, subject).kind == "wrong"


def test_a_program_keeps_its_weights_when_it_is_compared_with_float64():
    x = torch.ones(1, 3)
    subject = Subject(torch.export.export(torch.nn.Linear(3, 2), (x,)), [(x,)])
    expected = eager(subject)
    assert in_double(expected, expected, subject).kind == "right"
    assert eager(subject)[0][0][0].equal(expected[0][0][0])


@emulated
def test_a_file_is_judged_on_another_processor(monkeypatch):
    pytest.importorskip("etdev_llm", reason="etdev-llm is not installed")
    from survey import processors

    subject = processors.PARTS["aarch64 matrix"]()["mlp"]()
    known = {name: processors.verdict(subject, name).kind for name in ("here", "cortex-a53")}
    assert known == {"here": "right", "cortex-a53": "right"}
    ran = processors.run_series

    def off(*args, **options):
        outcome = ran(*args, **options)
        outcome.values[0].outputs[0].add_(1)
        return outcome

    monkeypatch.setattr(processors, "run_series", off)
    assert processors.verdict(subject, "cortex-a53").kind == "wrong"
    for failure, kind in (
        ("the process died of SIGILL", "crashed"),
        ("the process took longer than 9 s", "hung"),
        ("the C++ runtime failed with Error 18", "failed"),
    ):
        ended = ChildResult([], failure)
        monkeypatch.setattr(processors, "run_series", lambda *_, ended=ended, **__: ended)
        assert processors.verdict(subject, "cortex-a53").kind == kind


@emulated
@pytest.mark.suite
def test_a_decoder_is_judged_on_another_processor(monkeypatch):
    pytest.importorskip("etdev_llm", reason="etdev-llm is not installed")
    from survey import processors

    subject = processors.PARTS["aarch64 decoders"]()["llama"]()
    assert processors.verdict(subject, "cortex-a53").kind == "right"
    monkeypatch.setattr(processors, "tolerance_of", lambda *_: 0.0)
    assert processors.verdict(subject, "cortex-a53").kind == "wrong"


def test_the_page_counts_cells_on_other_processors():
    versions = {"date": "today", "torch": "2", "executorch": "1", "emulator": "qemu 9"}
    models = {
        "a": {"here": "right", "cortex-a53": "right", "cortex-a76": "wrong: off by 1"},
        "b": {"here": "refused: why", "cortex-a53": "refused: why", "cortex-a76": "refused: why"},
        "c": {"random": "random"},
    }
    text = "\n".join(table._lines({"zoo": {"of": 5, "models": models, "circumstances": versions}}))
    assert "\n4 of 8 cells on another processor were judged.\n" in text
    assert "| zoo | cortex-a76 | 2 | 0 | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "not judged: 1 random, 2 not reached yet (today, torch 2, ExecuTorch 1, qemu 9)" in text
    assert "  - `a` (cortex-a76): wrong, off by 1" in text


def test_the_page_has_the_results():
    assert table.PAGE.read_text() == table.page()


def test_the_survey_fails_where_a_verdict_is_a_fault():
    models = {"a": {"cpu": "right", "partitioner": "refused: why"}}
    assert table.faults("made up", models, None) == []
    assert table.faults("zoo", models, {("a", "partitioner"): "refused"}) == []
    assert table.faults("zoo", models, {}) == ["zoo a | partitioner: refused"]
    assert table.faults("zoo", models, {("a", "cpu"): "wrong"}) != []
    assert table.faults("made up", {}, None) == ["made up: nothing was judged"]
    lost = {"a": {"cpu": "refused", "executorch": "right"}}
    assert table.faults("made up", lost, None) == ["made up a | cpu: below its reference"]
    assert table.faults("made up", {"a": {"cpu": "hung: x"}}, None) == ["made up a | cpu: hung"]


@pytest.mark.suite
def test_the_numbers_of_a_part_are_those_of_its_verdicts():
    models = {
        "better": {"cpu": "right", "executorch": "raw: Error: why"},
        "worse": {"cpu": "refused: who: why", "executorch": "right"},
        "alike": {"cpu": "hung", "executorch": "failed"},
        "left out": {"random": "random"},
    }
    rows = [dict(zip(table.COLUMNS, row, strict=True)) for row in table.rows("made up", models)]
    counted = [{name: number for name, number in row.items() if number} for row in rows]
    cpu = {"part": "made up", "order": "cpu", "judged": 3, "right": 1, "refused": 1, "hung": 1}
    theirs = {"part": "made up", "order": "executorch", "judged": 3, "right": 1, "raw": 1}
    assert counted == [{**cpu, "below": 1}, {**theirs, "failed": 1}]
    assert [name for name in models if table.is_open(models[name])] == ["worse", "alike"]
