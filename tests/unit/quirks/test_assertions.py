"""Assertions about data are left out of a .pte, with all that computes what they test."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner

from etdev import Lowerer

X = torch.randn(1, 6, 4)
SIZES = torch.tensor([[2, 2], [1, 2]])
CALLS = [(X, SIZES), (X * 2, torch.tensor([[1, 2], [2, 2]]))]


def by_lowerer(module, inputs, plugins=("cpu",)):
    return Lowerer(plugins).lower(module, inputs)


roads = pytest.mark.parametrize("lower", [by_lowerer, by_partitioner])


def check_all(x, sizes):
    torch._check_tensor_all((sizes[:, 0] * sizes[:, 1]).sum() == x.shape[1], lambda: "no fit")
    return x.sin()


def assert_async(x, sizes):
    torch._assert_async((sizes > 0).all(), "sizes")
    return x.sin()


def check_item(x, sizes):
    torch._check_value((sizes.sum() == 7).item())
    return x.sin()


def check_unread_number(x, sizes):
    number, largest = sizes.sum().item(), sizes.max().item()
    torch._check(number >= largest)
    return x.sin()


def check_in_branch(x, sizes):
    def checked(x, sizes):
        torch._check_tensor_all(sizes > 0)
        return x.sin()

    return torch.cond(x.sum() > 0, checked, lambda x, sizes: x.cos(), (x, sizes))


CHECKED = [check_all, assert_async, check_item, check_unread_number, check_in_branch]


@pytest.mark.slice("by_lowerer", "check_item")
@roads
@pytest.mark.parametrize("function", CHECKED)
def test_an_assertion_about_data_is_left_out(lower, function):
    assert_agrees(lower(Function(function), CALLS[0], ["cpu"]), Function(function), *CALLS)


@pytest.mark.parametrize("function", CHECKED[:4])
def test_nothing_computes_for_an_assertion(function):
    plan = Lowerer([]).plan(Function(function), CALLS[0])["forward"]
    assert [node.op for node in plan.ledger] == ["aten.sin.default"]
    assert [fix.row for fix in plan.fixes] == ["assertions-on-data"]


def test_bounds_of_a_number_that_is_read_stay():
    def made(x, sizes):
        number = sizes.sum().item()
        torch._check(number >= 0)
        torch._check(number <= 9)
        torch._check(sizes.min().item() <= number)
        return x.new_ones(number, 2)

    calls = [(X, SIZES), (X, SIZES * 0), (X, SIZES[:1]), (X, SIZES + 0)]
    plan = Lowerer([]).plan(Function(made), calls[0])["forward"]
    assert "aten.min.default" not in [node.op for node in plan.ledger]
    assert_agrees(by_lowerer(Function(made), calls[0]), Function(made), *calls[:2], calls[3])


def test_a_tensor_that_is_asserted_and_returned_stays():
    def positive(x, sizes):
        positive = sizes > 0
        torch._check_tensor_all(positive)
        return positive, torch._is_all_true(x > 0), torch._is_any_true(x > 0)

    assert_agrees(by_lowerer(Function(positive), CALLS[0]), Function(positive), *CALLS)
