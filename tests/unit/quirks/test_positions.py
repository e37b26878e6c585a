"""Rows whose number depends on data: `x[i]` for an integer tensor `i`, from either end."""

from pathlib import Path

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner, execute
from torch import nn

from etdev import Lowerer
from etdev.errors import LoweringError

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
ROWS = [(X, torch.tensor(row)) for row in (1, 0, 2, -1, -3)]


def not_negative(x, i):
    row = i.item()
    torch._check(row >= 0)
    return x[row]


def written(x, i):
    y = x.clone()
    y[i].mul_(2)
    return y


@pytest.mark.slice("calls0", "calls2", "calls5", "calls6")
@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x, i: x[i], ROWS),
        (lambda x, i: x[i.int()], ROWS),
        (lambda x, i: x[:, i] * x[i, 0], ROWS),
        (lambda x, i: x[i - 1] + x[0, i + 1], ROWS[:3]),
        (lambda x, i: x[i, 1:3], ROWS),
        (not_negative, ROWS[:3]),
        (written, ROWS),
    ],
)
def test_a_row_is_the_one_that_eager_picks(function, calls):
    module = Function(function)
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)


# The sum's delegate begins with the product, before the row that it needs is selected.
@pytest.mark.parametrize("function", [lambda x, i: x[i], lambda x, i: x * 2 + x[i]])
def test_a_row_of_a_tensor_whose_size_changes(function):
    module = Function(function)
    sizes = {0: torch.export.Dim("rows", min=2, max=8)}
    lowered = Lowerer(["cpu"]).lower(module, ROWS[0], dynamic_shapes=((sizes, None),))
    calls = [(torch.randn(n, 4), torch.tensor(i)) for n, i in ((8, 7), (2, -2), (5, -1))]
    assert_agrees(lowered, module, *calls)


def test_a_position_with_known_bounds_stays_as_it_is():
    def bounded(x, i):
        row = i.item()
        torch._check(row >= 0)
        torch._check(row < 3)
        return x[row]

    lowered = Lowerer([]).lower(Function(bounded), ROWS[0])
    assert "mod" not in str(lowered.edge.exported_program().graph)


@pytest.mark.slice("written")
@pytest.mark.parametrize("function", [lambda x, i: x[i], lambda x, i: x[:, i + 1], written])
def test_a_row_out_of_range_fails_as_in_eager(function):
    lowered = Lowerer([]).lower(Function(function), ROWS[0])
    for row in (4, 100, -6, -(2**40)):
        with pytest.raises(IndexError):
            function(X, torch.tensor(row))
        with pytest.raises(RuntimeError, match="failed"):
            execute(lowered, (X, torch.tensor(row)))


@pytest.mark.slice("<lambda>0")
@pytest.mark.parametrize(
    "place", [lambda x, n: x[:n], lambda x, n: x[n:], lambda x, n: x.narrow(0, n, 2)]
)
def test_slices_by_numbers_of_which_nothing_is_known_are_refused(place):
    def rows(x, i):
        return place(x, i.item())

    program = torch.export.export(Function(rows), (torch.randn(3, 4), torch.tensor(1)))
    said = r"Guard.* data-dependent expression"
    with pytest.raises(LoweringError, match=said):
        Lowerer(["cpu"]).plan(program)
    with pytest.raises(LoweringError, match=said):
        by_partitioner(program, plugins=["cpu"])


class First(nn.Module):
    """The first rows, as many as an input says."""

    def __init__(self, checked):
        super().__init__()
        self.checked = checked

    def forward(self, x, count):
        n = count.item()
        if self.checked:
            torch._check(n >= 0)
            torch._check(n <= x.shape[0])
        return x[:n]


def test_a_slice_by_data_is_lowered_with_a_check_and_refused_with_its_line_without():
    inputs = X, torch.tensor(2)
    assert_agrees(Lowerer([]).lower(First(True), inputs), First(True), inputs)
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(First(False), inputs)
    line = First.forward.__code__.co_firstlineno + 5
    assert caught.value.what.endswith(f" at {Path(__file__).name}:{line}")
    assert caught.value.cure == (
        "say how large a number that depends on data is, such as torch._check(n >= 0); "
        "the cause is chained below"
    )
