"""Inputs of a method: loaded, made at random, and refused where they don't fit."""

from __future__ import annotations

import pytest
import torch
from support.models import nets

from etdev import Lowerer
from etdev.errors import RunError, SourceError
from etdev.pte.read import read
from etdev.runtime.inputs import load_inputs, random_inputs
from etdev.runtime.run import execute, run


@pytest.mark.parametrize("value", [torch.ones(2), [torch.ones(2)], (torch.ones(2),)])
def test_inputs_are_loaded_from_a_tensor_or_a_sequence(tmp_path, value):
    torch.save(value, tmp_path / "inputs.pt")
    (loaded,) = load_inputs(tmp_path / "inputs.pt")
    assert torch.equal(loaded, torch.ones(2))


@pytest.mark.parametrize("data", [None, b"", b"some text\n", b"PK\x03\x04cut"])
def test_a_file_that_holds_no_inputs_is_named(tmp_path, data):
    path = tmp_path / "inputs.pt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        load_inputs(path)
    assert caught.value.who == str(path)
    assert caught.value.what.startswith("can't be loaded as inputs (")
    assert caught.value.cure == "write them with torch.save([tensor, ...], path)"


def test_inputs_never_run_code_of_their_file(tmp_path):
    torch.save(torch.nn.Linear(1, 1), tmp_path / "module.pt")
    with pytest.raises(SourceError, match="can't be loaded as inputs"):
        load_inputs(tmp_path / "module.pt")


def test_random_inputs_are_the_same_for_the_same_seed(mlp_pte):
    (first,), (again,) = random_inputs(mlp_pte), random_inputs(mlp_pte)
    (other,) = random_inputs(mlp_pte, seed=1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_random_inputs_leave_the_global_generator_alone(mlp_pte):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    random_inputs(mlp_pte)
    assert torch.equal(torch.rand(1), expected)


def test_random_inputs_are_safe_as_indices(mixed_pte):
    table, index, count = random_inputs(mixed_pte)
    assert table.shape == (5, 3)
    assert table.std() > 0
    assert torch.equal(index, torch.zeros(2, dtype=torch.int64))
    assert count == 1


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
        run(mlp_pte, inputs)
    assert str(caught.value) == f"method 'forward': {what}; it takes float32 2x8"


def test_a_size_above_its_bound_is_refused(dynamic_pte):
    with pytest.raises(RunError) as caught:
        run(dynamic_pte, [torch.ones(9, 4)])
    assert str(caught.value) == (
        "method 'forward': input 0 is float32 9x4; it takes float32 up to 8x4"
    )


def test_the_refusal_lists_every_input_that_is_wanted(mixed_pte):
    with pytest.raises(RunError) as caught:
        run(mixed_pte, [])
    assert str(caught.value) == (
        "method 'forward': takes 3 inputs, got 0; it takes float32 5x3, int64 2, int"
    )


def test_inputs_are_laid_out_as_the_method_takes_them(tmp_path):
    """The runtime reads memory, not strides: a program for channels_last needs such tensors."""
    module = torch.nn.Conv2d(3, 8, 3)
    example = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    lowered = Lowerer(["cpu"]).lower(module, (example,))
    path = lowered.save(tmp_path / "conv.pte")
    assert read(path).methods[0].inputs[0].order == (0, 2, 3, 1)
    x = torch.randn(2, 3, 6, 6)
    for given in (x, x.to(memory_format=torch.channels_last), x.mT.contiguous().mT):
        (output,) = run(path, [given]).outputs
        torch.testing.assert_close(output, module(given), atol=1e-5, rtol=1e-4)
        (output,) = execute(path.read_bytes(), [given])
        torch.testing.assert_close(output, module(given), atol=1e-5, rtol=1e-4)
    assert lowered.verify(steps=3).calls >= 3


def test_inputs_that_are_views_are_made_dense(mlp_pte):
    module, (x,) = nets.mlp()
    (output,) = run(mlp_pte, [x.t().contiguous().t()]).outputs
    torch.testing.assert_close(output, module(x), atol=1e-5, rtol=1e-4)
