"""The zoo in all orders of plugins, judged by a runner that shares no code with etdev.

A slice runs with the other tests, all of it with `make suites`.
"""

import pytest
import torch
from survey import cells
from survey.judge import Judge, Subject, compared, eager

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


@pytest.mark.parametrize(
    ("model", "order"),
    [
        pytest.param(*cell, marks=[] if cell in QUICK else [pytest.mark.suite])
        for cell in cells.CELLS
    ],
)
def test_a_model_is_as_in_pytorch_or_refused_by_name(judge, model, order):
    verdict = judge.verdict(cells.subject(model), order)
    assert verdict.kind == cells.EXPECTED.get((model, order), "right"), verdict.text


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
