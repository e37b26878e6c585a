"""Completion: what ExecuTorch's own loop lacks is written in ops that it has, and computed."""

import copy

import pytest
import torch
from executorch.exir.backend.partitioner import Partitioner
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner
from support.zoo import state
from torch import nn

import etdev
from etdev.completion import completed
from etdev.errors import LoweringError

pytestmark = [
    pytest.mark.skipif(
        not hasattr(Partitioner, "transform_for_pre_decomposition"),
        reason="ExecuTorch 1.4 doesn't ask for a new program",
    ),
    pytest.mark.usefixtures("quick_conversion"),
]


def _branches(x):
    first = torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: x.exp() - 1, (x,))
    second = torch.cond(x.sum() > 1, lambda y: (y + 1) * y, lambda y: y - 3, (first,))
    return first + second, first


class Joined(nn.Module):
    """Joins a buffer without elements, which the runtime can't load."""

    def __init__(self):
        super().__init__()
        self.register_buffer("none", torch.zeros(0, 3))

    def forward(self, x):
        return torch.cat([self.none, x]) + 1


def _loop(x):
    start = (torch.tensor(0), x)
    return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), start)[1]


def _doubles(x):
    return x.double().sum(1), torch.log_softmax(x.double(), 1)


def _written(x):
    y = x * 2
    nn.functional.dropout(y, training=False).add_(1)
    return y


def _rows(x):
    """What depends on data, beside what ExecuTorch's own loop lacks."""
    rows = x[x.sum(1) > -9]
    return rows.split([1, 2], 1), (x * 9).long() % 4, x.sort(1)


class Swap(nn.Module):
    """Exchanges two buffers, and counts in a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.ones(3))
        self.register_buffer("second", torch.zeros(3))
        self.count = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        first = self.first.clone()
        self.first.copy_(self.second)
        self.second.copy_(first)
        return x + self.first * 2 + self.count.add_(1)


class Sum(nn.Module):
    """Reads its state by places that depend on data."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 3))

    def forward(self, x):
        self.sum += x
        return self.sum[x > 0], (self.sum * 9).long() % 4


def _spread(x):
    places = torch.tensor([2, 0])[:, None].expand_as(x)
    return torch.zeros(4, 3).scatter_reduce(0, places, x, "amax", include_self=False)


X = torch.randn(2, 3)


FUNCTIONS = (
    lambda x: (x * 9).long() % 4,
    lambda x: x.sort(1),
    _doubles,
    _branches,
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
    _written,
    _rows,
    _spread,
)


class Several(nn.Module):
    """Functions and modules with state, all in one program."""

    def __init__(self):
        super().__init__()
        self.modules_with_state = nn.ModuleList([Joined(), Sum()])

    def forward(self, x):
        return [call(x) for call in (*FUNCTIONS, *self.modules_with_state)]


@pytest.mark.slice("branch", "labels", "swap", "nothing")
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Several(), (X,)),
        (
            Function(lambda x: torch.cond(x.sum() > 0, lambda x: x % 3, lambda x: x + 1, (x,))),
            (torch.tensor([-7, 9]),),
        ),
        (Function(lambda x: x @ x.new_ones(0, 2)), (torch.randn(2, 0),)),
        (
            Function(nn.functional.multilabel_margin_loss),
            (X, torch.tensor([[0, -1, 1], [2, 0, -1]])),
        ),
        (Swap(), (X,)),
    ],
    ids=["several", "branch", "nothing", "labels", "swap"],
)
def test_what_executorchs_own_loop_lacks_is_computed(model, inputs):
    assert_agrees(by_partitioner(model, inputs, ["cpu"]), model, inputs, inputs)


@pytest.mark.parametrize(
    ("function", "x", "said"),
    [
        (lambda x: torch.bincount(x), torch.tensor([1, 2]), "decomposes aten.bincount.default"),
        (_loop, X, "ExecuTorch has neither while_loop nor maps .* no plugin took while_loop"),
        (torch.unique, X, "would transpose aten_nonzero_default"),
        (
            lambda x: torch.fft.irfft(x, 2, 1),
            X.long()[None].repeat(4, 1, 1),
            "would transpose aten__fft_c2r_default",
        ),
    ],
)
def test_what_nothing_computes_is_named(function, x, said):
    with pytest.raises(LoweringError, match=said):
        by_partitioner(Function(function), (x,))


def test_constants_that_executorch_leaves_in_a_method_without_inputs_are_refused():
    with pytest.raises(LoweringError, match="Invalid get_attr type"):
        by_partitioner(Function(lambda: torch.tril_indices(4, 4)), (), ["cpu"])


def test_the_symbols_of_a_completed_program_are_left_alone():
    program = torch.export.export(Function(torch.unique), (X,))
    (value,) = program.graph.find_nodes(op="placeholder")
    sizes = value.meta["val"].fake_mode.shape_env
    before = dict(sizes.var_to_range), list(sizes.pending_fresh_unbacked_symbols)
    completed(program, "forward", etdev.Lowerer(["cpu"]).composition, {})
    assert (dict(sizes.var_to_range), list(sizes.pending_fresh_unbacked_symbols)) == before


def test_a_parameter_may_be_written_where_gradients_are_on():
    model, x = state.ZOO.animals["bias_that_changes"].build(), torch.randn(2, 4)
    with torch.no_grad():
        program = torch.export.export(copy.deepcopy(model), (x,))
    assert_agrees(by_partitioner(program, plugins=["cpu"]), model, (x,), (x,))
