"""Remainders and quotients of sizes and of `.item()` numbers, which may be negative."""

import operator

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner

from etdev import Lowerer

DIVISORS = (4, -4, 3, -3, 1)
NUMBERS = (-7, -4, -3, 0, 3, 4, 7, 2**62, -(2**62))
SIZES = (1, 2, 3, 4, 5, 7)
ROWS = (({0: torch.export.Dim("rows", min=1, max=7)},),)


def by_lowerer(module, inputs, plugins=("cpu",), dynamic_shapes=None):
    return Lowerer(plugins).lower(module, inputs, dynamic_shapes=dynamic_shapes)


roads = pytest.mark.parametrize("lower", [by_lowerer, by_partitioner])


def whole(value):
    return torch.full((1,), value)


@roads
def test_numbers_of_any_sign_are_divided_as_in_python(lower):
    def divided(x):
        number = x.item()
        return [whole(op(number, d)) for d in DIVISORS for op in (operator.mod, operator.floordiv)]

    calls = [(torch.tensor(number),) for number in NUMBERS]
    assert_agrees(lower(Function(divided), calls[2], ["cpu"]), Function(divided), *calls)


@pytest.mark.slice("1-by_lowerer")
@roads
@pytest.mark.parametrize("sign", [1, -1])
def test_divisors_may_be_numbers_too(lower, sign):
    def divided(x, y):
        number, divisor = x.item(), y.item()
        torch._check(divisor * sign >= 1)
        return whole(number % divisor), whole(number // divisor)

    calls = [(torch.tensor(n), torch.tensor(d * sign)) for n in NUMBERS for d in (3, 4, 7)]
    assert_agrees(lower(Function(divided), calls[0], ["cpu"]), Function(divided), *calls)


@pytest.mark.slice("by_lowerer")
@roads
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * ((3 - x.shape[0]) % 4),
        lambda x: x * ((x.shape[0] - 2) % 5),
        lambda x: x * ((x.shape[0] - 9) // 4),
        lambda x: x * (-5 % x.shape[0]) + x.shape[0] % -3,
        lambda x: torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 4)),
        lambda x: torch.cond(
            x.sum() > 0, lambda x: x * ((3 - x.shape[0]) % 4), lambda x: x * (-x.shape[0] % 3), (x,)
        ),
    ],
)
def test_sizes_may_have_other_signs_than_in_the_example(lower, function):
    module = Function(function)
    calls = [(torch.randn(size, 2) + sign,) for size in SIZES for sign in (3, -3)]
    assert_agrees(lower(module, calls[-1], ["cpu"], ROWS), module, *calls)


@roads
def test_a_place_before_another_one_is_in_its_ring(lower):
    def ring(x, place):
        at = place.item()
        torch._check(at >= 0)
        torch._check(at < 1000)
        return x.narrow(0, (at - 3) % 8, 1) * 1

    calls = [(torch.randn(8, 3), torch.tensor(at)) for at in range(10)]
    assert_agrees(lower(Function(ring), calls[5], ["cpu"]), Function(ring), *calls)


def test_a_remainder_that_is_never_negative_stays_as_it_is():
    module = Function(lambda x: x * (x.shape[0] % 4))
    lowered = by_lowerer(module, (torch.ones(3, 2),), dynamic_shapes=ROWS)
    targets = [node.target for node in lowered.edge.exported_program().graph.nodes]
    assert targets.count(operator.mod) == 1
    assert operator.add not in targets
