"""Dynamic sizes: powers and floats of them, tensors without values, and ops that fix them."""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn

from etdev import Lowerer
from etdev.errors import LoweringError

EDGE = torch.export.Dim("edge", min=1, max=8)
SQUARE = {"inputs": ({1: EDGE, 2: EDGE},)}
ROWS = ({0: torch.export.Dim("rows", min=1, max=6)},)


def by_lowerer(module, inputs, plugins=(), dynamic_shapes=None):
    return Lowerer(plugins).lower(module, inputs, dynamic_shapes=dynamic_shapes)


roads = pytest.mark.parametrize("lower", [by_lowerer, by_partitioner])
LINEAR = nn.Linear(6, 6)


def triangle(x):
    y = LINEAR(x)
    return torch.einsum("bikc,bjkc->bijc", y, y)


def product(x):
    y = LINEAR(x).flatten(1, 2)
    return y.mT @ y


def cubed(x):
    return x * x.shape[1] ** 3


@pytest.mark.slice("triangle-by_lowerer-plugins1", "cubed-by_partitioner-plugins2")
@pytest.mark.parametrize(
    ("lower", "plugins"), [(by_lowerer, []), (by_lowerer, ["cpu"]), (by_partitioner, ["cpu"])]
)
@pytest.mark.parametrize("function", [triangle, product, cubed])
def test_a_map_of_two_equal_sizes_has_a_power_of_them(lower, plugins, function):
    calls = [(torch.randn(1, size, size, 6),) for size in (5, 8, 1, 3)]
    lowered = lower(Function(function), calls[0], plugins, SQUARE)
    assert_agrees(lowered, Function(function), *calls, tolerance=1e-4)


def resized(x):
    image = x[None]
    by = functools.partial(nn.functional.interpolate, image, mode="bicubic")
    exact = nn.functional.interpolate(image, scale_factor=2.0, mode="nearest-exact")
    return by(scale_factor=1.5), by(size=(7, 5)), exact


def quantile(x):
    return x.quantile(0.3, dim=1)


@pytest.mark.slice("quantile-by_lowerer")
@roads
@pytest.mark.parametrize("function", [resized, quantile])
def test_floats_are_made_of_sizes(lower, function):
    calls = [(torch.randn(2, size, size),) for size in (5, 8, 1, 3)]
    lowered = lower(Function(function), calls[0], ["cpu"], SQUARE)
    assert_agrees(lowered, Function(function), *calls, tolerance=1e-4)


@pytest.mark.slice("by_lowerer")
@roads
def test_tensors_without_values_may_have_dynamic_sizes(lower):
    def filled(x):
        made = torch.empty(x.shape[0], 3).fill_(2.0) + x.sum()
        return made, torch.empty_like(x).copy_(x) * 2, nn.functional.rrelu(x)

    calls = [(torch.randn(rows, 4),) for rows in (2, 6, 1, 3)]
    lowered = lower(Function(filled), calls[0], ["cpu"], {"inputs": (ROWS[0],)})
    assert_agrees(lowered, Function(filled), *calls)


def compared(x, mask):
    # Neither kernels nor backends know the order of what has two inner sizes that depend on data.
    some = x[:, mask[0] > 0][:, :, mask[1] > 0]
    places = mask.nonzero().T.contiguous()
    return some.softmax(1), places * 2, torch.stack([places[0], places[1]]).float()


@pytest.mark.parametrize("plugins", [["cpu"], []])
def test_inner_sizes_that_depend_on_data_may_be_0(plugins):
    masks = [torch.tensor(rows).float() for rows in ([[1, 0], [1, 1]], [[0, 0], [0, 1]])]
    calls = [(torch.randn(3, 2, 2), mask) for mask in (*masks, masks[0] * 0)]
    lowered = by_lowerer(Function(compared), calls[0], plugins)
    assert_agrees(lowered, Function(compared), *calls)
    assert "possibly-empty" in {fix.row for fix in lowered.plan["forward"].fixes}


def test_a_formula_that_fixes_a_size_while_it_is_planned_is_refused(monkeypatch):
    fixing = SimpleNamespace(prod=lambda sizes: int(math.prod(sizes)))
    monkeypatch.setattr("etdev.portable.decompositions.doubles.math", fixing)
    doubled = Function(lambda x: x.double().sum(0))
    with pytest.raises(LoweringError, match="split: ExecuTorch fixes dynamic size 0 of input"):
        by_lowerer(doubled, (torch.randn(2, 6),), [], {"inputs": (ROWS[0],)})


def in_pieces(x):
    # A plugin may keep the ops whole that make a list.
    first, second = x.split((0, x.shape[1]), 1)[1].chunk(2, -1)
    return [*(first + second).unbind(1), *x.split(2, -1)]


@pytest.mark.parametrize("plugins", [["cpu"], []])
def test_lists_of_tensors_may_have_a_dynamic_first_size(plugins):
    calls = [(torch.randn(rows, 2, 6),) for rows in (2, 6, 1, 3)]
    lowered = by_lowerer(Function(in_pieces), calls[0], plugins, {"inputs": (ROWS[0],)})
    assert_agrees(lowered, Function(in_pieces), *calls)


def test_a_plugin_that_keeps_a_split_whole_gets_slices_of_a_dynamic_first_size():
    program = torch.export.export(Function(in_pieces), (torch.randn(2, 2, 6),), None)
    assert "aten.split_copy.Tensor" in ops_of(program, ["cuda"])
    program = torch.export.export(
        Function(in_pieces), (torch.randn(2, 2, 6),), dynamic_shapes={"inputs": (ROWS[0],)}
    )
    assert "aten.slice_copy.Tensor" in ops_of(program, ["cuda"])


def ops_of(program, plugins):
    return {entry.op for entry in Lowerer(plugins).plan(program)["forward"].ledger}


class Unfolded(nn.Module):
    def forward(self, x):
        y = x.clone()
        y.unfold(1, 2, 2).select(2, 1).neg_()
        return y


def test_an_op_that_fixes_a_size_is_named_with_its_line():
    line = Unfolded.forward.__code__.co_firstlineno + 2
    with pytest.raises(LoweringError) as caught:
        by_lowerer(Unfolded(), (torch.randn(2, 6),), ["cpu"], ROWS)
    assert str(caught.value) == (
        "validate: ExecuTorch fixes dynamic size 0 of input 'x' of method 'forward' to 2 in "
        f"aten.neg_.default at test_sizes.py:{line}; export it with that size, or write that op "
        "with others"
    )
