"""Runs in ExecuTorch's own runtime, and the comparison with eager."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from models import nets

from etdev import Lowerer
from etdev.errors import ArtifactError, RunError, SourceError
from etdev.runtime import run
from etdev.runtime.run import Difference

NAN, INF = math.nan, math.inf


class Mixed(torch.nn.Module):
    """Inputs of several kinds: floats, an index, a number."""

    def forward(self, table: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
        return table[index] * count


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def mixed(folder) -> Path:
    inputs = (torch.ones(5, 3), torch.tensor([1, 4]), 2)
    return Lowerer([]).lower(Mixed(), inputs).save(folder / "mixed.pte")


def test_outputs_equal_eager(mlp_pte):
    module, inputs = nets.mlp()
    done = run.run(mlp_pte, inputs)
    with torch.no_grad():
        (difference,) = run.compare(done.outputs, [module(*inputs)])
    assert difference.max_error < 1e-5
    assert difference.max_value > 0.1


def test_each_timed_call_has_its_latency(mlp_pte):
    done = run.run(str(mlp_pte), nets.mlp()[1], repeat=5)
    assert len(done.latency_ms) == 5
    assert min(done.latency_ms) <= done.median_ms <= max(done.latency_ms)
    assert min(done.latency_ms) > 0


def test_outputs_survive_a_second_run(mlp_pte):
    first = run.run(mlp_pte, [torch.ones(2, 8)])
    before = first.outputs[0].clone()
    second = run.run(mlp_pte, [torch.zeros(2, 8)])
    assert torch.equal(first.outputs[0], before)
    assert not torch.equal(first.outputs[0], second.outputs[0])


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_dynamic_size_may_be_anything_up_to_its_bound(dynamic_pte, rows):
    (output,) = run.run(dynamic_pte, [torch.ones(rows, 4)]).outputs
    assert torch.equal(output, torch.ones(rows, 4))


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([], "takes 1 inputs, got 0"),
        ([torch.ones(2, 8), torch.ones(2, 8)], "takes 1 inputs, got 2"),
        ([torch.ones(3, 8)], "input 0 is float32 3x8"),
        ([torch.ones(8)], "input 0 is float32 8"),
        ([torch.tensor(1.0)], "input 0 is float32 scalar"),
        ([torch.ones(2, 8, dtype=torch.int64)], "input 0 is int64 2x8"),
        ([torch.ones(2, 8, dtype=torch.float64)], "input 0 is float64 2x8"),
        ([1.5], "input 0 is 1.5"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_the_runtime(mlp_pte, inputs, what):
    with pytest.raises(RunError) as caught:
        run.run(mlp_pte, inputs)
    assert str(caught.value) == f"method 'forward': {what}; it takes float32 2x8"


def test_a_size_above_its_bound_is_refused(dynamic_pte):
    with pytest.raises(RunError) as caught:
        run.run(dynamic_pte, [torch.ones(9, 4)])
    assert str(caught.value) == (
        "method 'forward': input 0 is float32 9x4; it takes float32 up to 8x4"
    )


def test_the_refusal_lists_every_input_that_is_wanted(mixed):
    with pytest.raises(RunError) as caught:
        run.run(mixed, [])
    assert str(caught.value) == (
        "method 'forward': takes 3 inputs, got 0; it takes float32 5x3, int64 2, int"
    )


def test_what_the_runtime_refuses_names_file_and_method(mixed):
    with pytest.raises(RunError) as caught:
        run.run(mixed, [torch.ones(5, 3), torch.tensor([1, 4]), "two"])
    assert caught.value.who == f"{mixed}, method 'forward'"
    assert caught.value.what.startswith("the runtime failed with RuntimeError: ")
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: run.run(path, [], "backward"),
        lambda path: run.random_inputs(path, "backward"),
    ],
)
def test_an_unknown_method_names_those_there_are(mlp_pte, call):
    with pytest.raises(RunError) as caught:
        call(mlp_pte)
    assert str(caught.value) == f"{mlp_pte}: has no method 'backward'; it has forward"


def test_a_file_that_is_no_pte_is_an_artifact_error(tmp_path):
    path = tmp_path / "text.pte"
    path.write_text("some text\n")
    with pytest.raises(ArtifactError) as caught:
        run.run(path, [])
    assert str(caught.value) == f"{path}: is not a .pte file; give a .pte that ExecuTorch wrote"


def test_random_inputs_are_the_same_for_the_same_seed(mlp_pte):
    (first,), (again,) = run.random_inputs(mlp_pte), run.random_inputs(mlp_pte)
    (other,) = run.random_inputs(mlp_pte, seed=1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_random_inputs_leave_the_global_generator_alone(mlp_pte):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run.random_inputs(mlp_pte)
    assert torch.equal(torch.rand(1), expected)


def test_random_inputs_are_safe_as_indices(mixed):
    table, index, count = run.random_inputs(mixed)
    assert table.shape == (5, 3)
    assert table.std() > 0
    assert torch.equal(index, torch.zeros(2, dtype=torch.int64))
    assert count == 1


@pytest.mark.parametrize(
    ("output", "eager", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], Difference(0.5, 2.5)),
        ([1.0, INF, -INF], [1.0, INF, -INF], Difference(0.0, INF)),
        ([INF], [-INF], Difference(INF, INF)),
        ([1.0], [INF], Difference(INF, INF)),
        ([], [], Difference(0.0, 0.0)),
    ],
)
def test_the_largest_error_counts_and_equal_infinities_are_none(output, eager, expected):
    assert run.compare([torch.tensor(output)], [torch.tensor(eager)]) == [expected]


def test_nan_on_both_sides_is_no_error():
    both = torch.tensor([1.0, NAN])
    (difference,) = run.compare([both], [both])
    assert difference.max_error == 0


@pytest.mark.parametrize(("output", "eager"), [([0.0, NAN], [0.0, 1.0]), ([0.0, 1.0], [0.0, NAN])])
def test_nan_on_one_side_is_an_error_of_nan(output, eager):
    (difference,) = run.compare([torch.tensor(output)], [torch.tensor(eager)])
    assert math.isnan(difference.max_error)


def test_numbers_and_other_dtypes_are_compared_too():
    outputs = [3, True, torch.tensor([200], dtype=torch.uint8), torch.tensor([2**40])]
    eager = [4, True, torch.tensor([100], dtype=torch.uint8), torch.tensor([2**40 + 1])]
    assert [d.max_error for d in run.compare(outputs, eager)] == [1.0, 0.0, 100.0, 1.0]


def test_a_different_shape_is_no_match_even_if_it_broadcasts():
    with pytest.raises(RunError) as caught:
        run.compare([torch.ones(2), torch.ones(1, 3)], [torch.ones(2), torch.ones(3)])
    assert str(caught.value) == "check: output 1 has shape (1, 3), eager (3,); is it this model?"


def test_a_different_number_of_outputs_is_no_match():
    with pytest.raises(RunError) as caught:
        run.compare([torch.ones(2)], [torch.ones(2), torch.ones(2)])
    assert str(caught.value) == "check: 1 outputs against 2 of eager; is it this model?"


def test_flat_follows_the_order_of_a_pte():
    nested = {"a": (1, [2, None]), "b": 3}
    assert run.flat(nested) == [1, 2, 3]


@pytest.mark.parametrize("value", [torch.ones(2), [torch.ones(2)], (torch.ones(2),)])
def test_inputs_are_loaded_from_a_tensor_or_a_sequence(tmp_path, value):
    torch.save(value, tmp_path / "inputs.pt")
    (loaded,) = run.load_inputs(tmp_path / "inputs.pt")
    assert torch.equal(loaded, torch.ones(2))


@pytest.mark.parametrize("data", [None, b"", b"some text\n", b"PK\x03\x04cut"])
def test_a_file_that_holds_no_inputs_is_named(tmp_path, data):
    path = tmp_path / "inputs.pt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        run.load_inputs(path)
    assert caught.value.who == str(path)
    assert caught.value.what.startswith("can't be loaded as inputs (")
    assert caught.value.cure == "write them with torch.save([tensor, ...], path)"


def test_inputs_never_run_code_of_their_file(tmp_path):
    torch.save(torch.nn.Linear(1, 1), tmp_path / "module.pt")
    with pytest.raises(SourceError, match="can't be loaded as inputs"):
        run.load_inputs(tmp_path / "module.pt")


def test_inputs_that_are_views_are_made_dense(tmp_path):
    module, (x,) = nets.mlp()
    path = Lowerer(["cpu"]).lower(module, (x,)).save(tmp_path / "mlp_pte.pte")
    (output,) = run.run(path, [x.t().contiguous().t()]).outputs
    torch.testing.assert_close(output, module(x), atol=1e-5, rtol=1e-4)
