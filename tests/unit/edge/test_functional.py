"""Programs that write in place: as in PyTorch, and traced once where nobody else sees the write."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import ExportedProgram

from etdev import Lowerer
from etdev.edge.functional import functional, without_own_writes

X = torch.randn(2, 4, 6)


class Block(nn.Module):
    """A residual block as vision models have it."""

    def __init__(self, inplace):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.relu, self.inplace = nn.ReLU6(inplace=inplace), inplace

    def forward(self, x):
        y = self.norm(self.conv(self.relu(self.norm(self.conv(x)))))
        y = y.add_(x) if self.inplace else y.add(x)
        return self.relu(y)


def written_view(x):
    y = x * 2
    first = y[0]
    y.add_(1)
    return first + y


def written_through_dropout(x):
    y = x * 2
    nn.functional.dropout(y, training=False).add_(1)
    return y


def written_through_einsum(x):
    y = x * 2
    torch.einsum("ijk->ikj", y).add_(1)
    return y


def written_behind_dropout(x):
    y = x * 2
    handed_on = nn.functional.dropout(y, training=False)
    y.mul_(3)[:, 0] = 1
    return handed_on, handed_on + 1


def written_behind_other_dropouts(x):
    y, z = x * 2, x + 0
    channels = nn.functional.dropout2d(y[None], training=False)
    alphas = nn.functional.alpha_dropout(z, training=False)
    nothing = nn.functional.dropout(alphas, 0.0, training=True)
    y.add_(1)
    nothing.mul_(2)
    return channels, alphas, z, nothing


def written_through_many(x):
    (only,) = torch.atleast_3d([x * 2])
    grid, _ = torch.meshgrid(x[0, 0] + 1, x[0, 1] + 1, indexing="ij")
    (product,) = (torch.cartesian_prod(x[0, 0] * 3),)
    same = nn.functional.pixel_shuffle(only[None], 1)
    same[0, 0].add_(5)
    product.neg_()
    return only, grid[0].clone(), product


def read_before_and_after(x):
    y = x * 2
    before = y + 1
    y.add_(y)
    return before, y, y.mul_(3), before * y


def written_in_a_vmap(x):
    y = x * 2
    torch.vmap(lambda row: row.add_(row.sum()))(y)
    return y, torch.vmap(
        lambda row: row.new_zeros(6).index_put_((torch.tensor([1, 3]),), row[0, :2])
    )(y)


def compared_in_place(x):
    y = x * 2
    return y.gt_(0.5), y + 1


def of_another_dtype(x):
    y = (x * 2).to(torch.int32) + 0
    y.add_(x.abs().int())
    z = x.half() + 0
    return y.mul_(2), z.add_(x), z


def of_another_layout(x):
    y = x[None].contiguous(memory_format=torch.channels_last) * 2
    z = x[None] * 3
    return y.add_(z), z.add_(y), z.sum(-1)


def rows_of_a_value(x):
    first, second = (x * 2).split(2, dim=1)
    first.add_(1)
    return first, second.mul_(2)


def filled(x):
    y = x * 2
    y.masked_fill_(x > 0, 7.0)
    z = (x + 1).zero_()
    z[:, 1] = 5
    return y, z.copy_(y), z


def by_a_number(x):
    y = x.abs() + 1
    y.pow_(2).sqrt_().clamp_(0.5, 3).neg_()
    return y.sigmoid_() - y


NEVER_SEEN = [read_before_and_after, of_another_layout]
SEEN = [
    *(written_view, written_through_dropout, written_through_einsum, written_behind_dropout),
    *(written_behind_other_dropouts, written_through_many, written_in_a_vmap, compared_in_place),
    *(of_another_dtype, rows_of_a_value, filled, by_a_number),
]


@pytest.fixture
def traced(monkeypatch):
    """Whether a program is decomposed with hardly a table, which makes it functional."""
    tables, run = [], ExportedProgram.run_decompositions

    def note(program, table):
        tables.append(table)
        return run(program, table)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", note)
    return lambda: any(len(table) < 5 for table in tables)


@pytest.mark.slice("plugins0")
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
def test_a_block_that_writes_in_place_is_traced_once_and_gives_the_same_bytes(plugins, traced):
    x = torch.randn(1, 3, 8, 8)
    functional(without_own_writes(torch.export.export(Block(True).eval(), (x,))))
    assert not traced()
    inplace, plain = (Lowerer(plugins).lower(Block(way).eval(), (x,)) for way in (True, False))
    assert inplace.to_executorch().buffer == plain.to_executorch().buffer
    assert_agrees(inplace, Block(True).eval(), (x,))


@pytest.mark.slice(
    "read_before_and_after",
    "written_view",
    "written_through_many",
    "written_in_a_vmap",
    "rows_of_a_value",
    "of_another_dtype",
)
@pytest.mark.parametrize("function", [*NEVER_SEEN, *SEEN], ids=lambda function: function.__name__)
def test_writes_are_as_in_pytorch(function, traced):
    lowered = Lowerer([]).lower(Function(function), (X,))
    assert traced() == (function in SEEN)
    assert_agrees(lowered, Function(function), (X,), (-X,))


VIEWS = {
    "expand_as": lambda x: x[:1].expand_as(x),
    "view_as": lambda x: x.view_as(torch.zeros(8, 6)),
    "reshape_as": lambda x: x.mT.reshape_as(torch.zeros(8, 6)),
    "type_as": lambda x: x.type_as(torch.zeros(1, dtype=torch.int32)),
    "numpy_T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "t": lambda x: x[1].t(),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "swapdims": lambda x: x.swapdims(0, 1),
    "movedim": lambda x: x.movedim((0, 1), (1, 2)),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "ravel": lambda x: x.ravel(),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "chunk": lambda x: x.chunk(4, 2),
}


def test_views_need_no_trace_of_their_own_and_are_as_in_pytorch(traced):
    def all_of_them(x):
        y = x + 1
        return [view(y) for view in VIEWS.values()]

    lowered = Lowerer([]).lower(Function(all_of_them), (X,))
    assert not traced()
    assert_agrees(lowered, Function(all_of_them), (X,))


def test_a_chunk_becomes_the_split_that_plugins_know(traced):
    def chunks(x):
        return [part + 1 for part in (*x.chunk(4, -1), *x.chunk(3, 1), *x.chunk(5))]

    program = functional(without_own_writes(torch.export.export(Function(chunks), (X,))))
    assert not traced()
    ops = {node.target for node in program.graph.nodes}
    assert torch.ops.aten.split.Tensor in ops
    assert torch.ops.aten.chunk.default not in ops
    assert_agrees(Lowerer([]).lower(Function(chunks), (X,)), Function(chunks), (X,))
