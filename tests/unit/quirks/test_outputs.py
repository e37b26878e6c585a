"""What ExecuTorch can't return or run is refused by name, before its own words."""

import re

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch._higher_order_ops import map as mapped

from etdev import Lowerer
from etdev.errors import LoweringError

X = torch.randn(3, 4)
FLOWS = "ExecuTorch has neither while_loop nor maps of several tensors, and no plugin took"


def refusal(function, *inputs):
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).lower(Function(function), inputs).to_executorch()
    return caught.value


@pytest.mark.parametrize(
    "function",
    [
        lambda x: None,
        lambda x: (5, x.shape[0]),
        lambda x: x.argmax().item(),
        lambda x: (x.sum() > 0).item(),
    ],
)
def test_a_method_without_a_tensor_among_its_outputs_is_refused(function):
    assert refusal(function, X).what == (
        "method 'forward' returns no tensor, and ExecuTorch plans memory only for methods that "
        "return or keep one"
    )


def test_a_method_may_return_numbers_beside_a_tensor():
    def sizes(x):
        return x + 1, x.argmax().item(), 5

    assert_agrees(Lowerer([]).lower(Function(sizes), (X,)), sizes, (X,), (-X,))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda z: z * 2, X.to(torch.complex64)),
        (lambda x: torch.view_as_complex(x) * 2j, X[:, :2].contiguous()),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), X),
    ],
)
def test_complex_numbers_that_executorch_fails_on_are_refused(function, inputs):
    error = refusal(function, inputs)
    assert error.what.startswith("aten.mul.Tensor at small.py:")
    assert "ExecuTorch takes no complex numbers there" in error.what


@pytest.mark.slice("<lambda>0")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: mapped(lambda pair: pair[0] * pair[1], (x, x + 1)),
        lambda x: mapped(lambda row: (row + 1, row.sum()), x),
        lambda x: mapped(lambda row: mapped(lambda one: (one * 2, one + 1), row)[0], x),
    ],
)
def test_a_map_over_several_tensors_or_to_several_results_is_refused_with_its_line(function):
    assert re.match(rf"{FLOWS} map_impl\w* at ", refusal(function, X).what)
