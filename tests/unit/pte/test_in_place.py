"""Rows are written into buffers in place where nothing needs the old value later."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etdev import Lowerer
from etdev.pte.read import read
from etdev.upstream.emission import PLANS_WRITES

pytestmark = pytest.mark.skipif(not PLANS_WRITES, reason="this ExecuTorch plans no such memory")
ROWS, SIZE = 6, 4


class Cache(nn.Module):
    """A method that writes rows of a buffer at a position."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(ROWS, SIZE))

    def write(self, x, start):
        self.rows.index_copy_(0, torch.arange(x.shape[0]) + start, x)


class ReadsNew(Cache):
    def forward(self, x, start):
        self.write(x, start)
        return self.rows.view(-1) * 2, self.rows.t().sum(0), x @ self.rows.t()


class ReadsOldBefore(Cache):
    def forward(self, x, start):
        old = self.rows.view(2, -1).argmax(-1)
        self.write(x + old.sum(), start)
        return old, self.rows.view(2, -1) * 2


class WritesTwice(Cache):
    def forward(self, x, start):
        self.write(x, start)
        between = self.rows.view(-1).cumsum(0)
        self.write(x + 1, (start + 1) % (ROWS - 1))
        return between, self.rows.view(-1) * 2


class Accumulates(Cache):
    def forward(self, x, start):
        self.rows.index_put_((torch.zeros(2, dtype=torch.long) + start,), x, accumulate=True)
        return self.rows * 1


class WritesColumns(Cache):
    def forward(self, x, start):
        self.rows[:, start] = x.sum()
        return self.rows.view(-1) * 1


class ReadsOldLater(Cache):
    def forward(self, x, start):
        old = self.rows.clone()
        self.write(x, start)
        return self.rows.view(-1) + old.view(-1)


class ReadsViewOfOldLater(Cache):
    def forward(self, x, start):
        new = torch.index_put(self.rows, (torch.arange(2) + start,), x)
        total = new.sum()
        old = self.rows.view(-1) * 2
        self.rows.copy_(new)
        return old, total


class ReturnsOld(Cache):
    def forward(self, x, start):
        new = torch.index_put(self.rows, (torch.arange(2) + start,), x)
        view = self.rows.view(2, -1)
        out = view.clone()
        self.rows.copy_(new)
        return out


class ReturnsNew(Cache):
    def forward(self, x, start):
        self.write(x, start)
        return self.rows


class WritesItself(Cache):
    def forward(self, x, start):
        self.write(self.rows.view(2, 3, 4)[:, 1] + x, start)
        self.rows.index_copy_(0, torch.arange(ROWS).flip(0), self.rows.clone())
        return self.rows.view(-1) * 1


class WritesMasked(Cache):
    def forward(self, x, start):
        self.rows[torch.arange(ROWS) > start] = 7.0
        return self.rows.view(-1) * 1


class WritesElsewhere(Cache):
    def __init__(self):
        super().__init__()
        self.register_buffer("other", torch.zeros(ROWS, SIZE))

    def forward(self, x, start):
        new = torch.index_put(self.rows, (torch.arange(2) + start,), x)
        self.other.copy_(new)
        return self.other.view(-1) + self.rows.view(-1)


class WritesAnyPlace(Cache):
    def forward(self, x, start):
        # A negative place is one from the end, which the kernel refuses.
        self.rows.index_put_((torch.arange(2) + start - 3,), x)
        return self.rows.view(-1) * 1


IN_PLACE = [ReadsNew, ReadsOldBefore, WritesTwice]
COPIED = [ReadsOldLater, ReadsViewOfOldLater, ReturnsOld, ReturnsNew, WritesItself, WritesMasked]
COPIED += [WritesElsewhere, Accumulates, WritesColumns, WritesAnyPlace]


def inputs(start):
    return torch.arange(2.0 * SIZE).reshape(2, SIZE) + 10 * start + 1, torch.tensor([start])


def kernels(path):
    methods = read(path).methods
    return {
        method.name: set(method.kernels)
        & {"aten::index_put_", "aten::copy_", "aten::index_put.out"}
        for method in methods
    }


@pytest.mark.slice(
    "ReadsNew-cpu",
    "ReadsOldLater-portable",
    "ReadsViewOfOldLater-portable",
    "WritesMasked-portable",
    "ReturnsOld-cpu",
)
@pytest.mark.parametrize("order", [[], ["cpu"]], ids=["portable", "cpu"])
@pytest.mark.parametrize("kind", [*IN_PLACE, *COPIED], ids=lambda kind: kind.__name__)
def test_values_and_state_are_those_of_eager(kind, order, tmp_path):
    lowered = Lowerer(order).lower(kind().eval(), inputs(0))
    path = lowered.save(tmp_path / "net.pte")
    calls = [inputs(start) for start in (2, 0, 3, 1, 2)]
    assert lowered.verify(calls, path=path, steps=5).calls == 5
    used = kernels(path)["forward"]
    assert ("aten::index_put_" in used) == (kind in IN_PLACE), used
    assert ("aten::copy_" in used) == (kind in COPIED), used


class Reads(nn.Module):
    """A method that reads what another one wrote."""

    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    def forward(self):
        return self.cache.rows.view(-1) * 1


@pytest.mark.slice("cpu")
@pytest.mark.parametrize("order", [[], ["cpu"]], ids=["portable", "cpu"])
def test_methods_share_a_buffer_that_is_written_in_place(order, tmp_path):
    cache = ReadsNew().eval()
    methods = {"write": (cache, inputs(0)), "again": (cache, inputs(1)), "read": (Reads(cache), ())}
    lowered = Lowerer(order).lower(methods)
    path = lowered.save(tmp_path / "net.pte")
    assert lowered.verify(path=path, steps=4).calls >= 12
    used = kernels(path)
    assert all("aten::index_put_" in used[method] for method in ("write", "again"))


def test_the_caller_s_graph_and_the_edge_programs_stay_functional():
    program = torch.export.export(ReadsNew().eval(), inputs(0))
    before = str(program.graph)
    lowered = Lowerer([]).lower(program)
    lowered.to_executorch()
    assert str(program.graph) == before
    assert "index_put_." not in str(lowered.edge.exported_program().graph)
