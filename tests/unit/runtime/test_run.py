"""Runs in ExecuTorch's own runtime: outputs, latencies, and what the runtime refuses."""

from __future__ import annotations

import pytest
import torch
from support.models import nets

from etdev.errors import RunError
from etdev.runtime.inputs import random_inputs
from etdev.runtime.run import run
from etdev.verify.output_error import compare


def test_outputs_equal_eager(mlp_pte):
    module, inputs = nets.mlp()
    done = run(mlp_pte, inputs)
    with torch.no_grad():
        (difference,) = compare(done.outputs, [module(*inputs)])
    assert difference.max_error < 1e-5
    assert difference.max_value > 0.1


def test_each_timed_call_has_its_latency(mlp_pte):
    done = run(str(mlp_pte), nets.mlp()[1], repeat=5)
    assert len(done.latency_ms) == 5
    assert min(done.latency_ms) <= done.median_ms <= max(done.latency_ms)
    assert min(done.latency_ms) > 0


def test_outputs_survive_a_second_run(mlp_pte):
    first = run(mlp_pte, [torch.ones(2, 8)])
    before = first.outputs[0].clone()
    second = run(mlp_pte, [torch.zeros(2, 8)])
    assert torch.equal(first.outputs[0], before)
    assert not torch.equal(first.outputs[0], second.outputs[0])


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_dynamic_size_may_be_anything_up_to_its_bound(dynamic_pte, rows):
    (output,) = run(dynamic_pte, [torch.ones(rows, 4)]).outputs
    assert torch.equal(output, torch.ones(rows, 4))


def test_what_the_runtime_refuses_names_file_and_method(mixed_pte):
    with pytest.raises(RunError) as caught:
        run(mixed_pte, [torch.ones(5, 3), torch.tensor([1, 4]), "two"])
    assert caught.value.who == f"{mixed_pte}, method 'forward'"
    assert caught.value.what.startswith("the runtime failed with RuntimeError: ")
    assert caught.value.cure == (
        "it has no delegates, so a portable kernel failed; see etdev check"
    )


def test_what_the_runtime_refuses_names_the_backends_that_it_needs(on_cuda):
    with pytest.raises(RunError) as caught:
        run(on_cuda, [torch.ones(2, 2), torch.ones(2, 2)])
    assert caught.value.cure == "it needs the backends FakeAccelerator; see etdev check"


@pytest.mark.parametrize(
    "call",
    [
        lambda path: run(path, [], "backward"),
        lambda path: random_inputs(path, "backward"),
    ],
)
def test_an_unknown_method_names_those_there_are(mlp_pte, call):
    with pytest.raises(RunError) as caught:
        call(mlp_pte)
    assert str(caught.value) == f"{mlp_pte}: has no method 'backward'; it has forward"
