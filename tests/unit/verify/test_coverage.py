"""What the calls of a verification tried: drawn inputs take each branch, and gaps are told."""

from __future__ import annotations

import pytest
import torch
from support.models.small import Function
from torch.export import Dim

from etdev import Lowerer, VerifyError

X = torch.rand(4, 3) + 1


def branches(limit, wrong=0.0):
    def true(x):
        return x * (1 + wrong if torch.compiler.is_exporting() else 1)

    def forward(x):
        return torch.cond(x.max() > limit, true, lambda x: x.sin(), (x,))

    return Lowerer([]).lower(Function(forward), (X,))


def told(lowered):
    return [text for text in lowered.verify(runner="python").coverage[0].gaps if "branch" in text]


@pytest.mark.slice("0.5", "1000000000.0")
@pytest.mark.parametrize("limit", [-0.5, 0.5, 1.5, 100.0, 1e9])
def test_inputs_are_found_that_take_each_branch(limit):
    assert told(branches(limit)) == []
    with pytest.raises(VerifyError):
        branches(limit, wrong=0.1).verify(runner="python")


def test_a_branch_that_no_call_takes_is_told_with_its_line():
    line = branches.__code__.co_firstlineno + 5
    (text,) = told(branches(1e12, wrong=0.1))
    assert text == f"branch `true` at test_coverage.py:{line} not taken"


@pytest.mark.slice("1.0")
@pytest.mark.parametrize("steepness", [1.0, 1e5])
def test_an_order_of_equal_values_that_pytorch_leaves_open_is_no_fault(steepness):
    def forward(scores, boxes):
        order = (scores * steepness).sigmoid().argsort(descending=True)
        return boxes[order], order

    inputs = (torch.randn(40), torch.randn(40, 4))
    result = Lowerer([]).lower(Function(forward), inputs).verify(runner="python")
    line = forward.__code__.co_firstlineno + 1
    assert result.coverage[0].gaps == (f"equal values at test_coverage.py:{line} not tried",)
    assert result.calls > 3


def test_a_wrong_order_is_a_fault_where_equal_values_may_come_in_any():
    def forward(scores):
        least = scores.sigmoid().argsort()
        return least.flip(0) if torch.compiler.is_exporting() else least

    lowered = Lowerer([]).lower(Function(forward), (torch.randn(40),))
    with pytest.raises(VerifyError, match="output 0 is off by"):
        lowered.verify(runner="python")


class Counts(torch.nn.Module):
    """Its calls are counted, and nothing reads how many they were."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x * 2


def verified(model, inputs, given=None, **how):
    lowered = Lowerer([]).lower(model, inputs, **how)
    return lowered.verify(given, steps=1 if given else 3, runner="python")


def test_sizes_that_no_call_has_are_counted():
    sizes = [({0: Dim("rows", min=2, max=500)},)]
    (coverage,) = verified(Function(torch.sin), (X,), dynamic_shapes=sizes).coverage
    known = coverage.sizes["inputs_0.shape[0]"]
    assert {2, 4, 500} < {*known}
    assert coverage.gaps == (f"inputs_0.shape[0] at {len(known)} of 499 sizes",)


def test_a_dynamic_size_that_is_the_same_in_all_calls_is_told():
    sizes = [({0: Dim("rows", max=8)},)]
    done = verified(Function(torch.sin), (X,), (X,), dynamic_shapes=sizes)
    assert done.coverage[0].gaps == ("inputs_0.shape[0] always 4",)
    assert str(done).endswith("; inputs_0.shape[0] always 4")


@pytest.mark.parametrize(
    ("size", "tried"), [(lambda n: 2 * n, range(2, 15, 2)), (lambda n: n + 1, range(2, 9))]
)
def test_sizes_that_follow_from_another_are_tried_and_counted(size, tried):
    def forward(x):
        half = x.shape[0] // 2
        return x[:half].sum() + x[x.shape[0] - half :]

    sizes = [({0: size(Dim("rows", min=1, max=7))},)]
    done = verified(Function(forward), (X,), dynamic_shapes=sizes)
    assert {*done.coverage[0].sizes["inputs_0.shape[0]"]} == {*tried}
    assert done.coverage[0].gaps == ()


def test_sizes_that_torch_export_took_for_granted_are_named():
    def forward(x):
        return x * 2 if x.shape[0] % 2 == 0 else x * 3

    with pytest.raises(VerifyError, match=r"took for granted that .*size\(\)\[0\] % 2 == 0: say"):
        verified(Function(forward), (X,), dynamic_shapes=[({0: Dim.DYNAMIC(max=9)},)])


def test_an_integer_that_eager_takes_at_one_value_only_is_told():
    table = torch.randn(1, 3)
    model = Function(lambda x: table[x])
    (coverage,) = verified(model, (torch.tensor([0]),)).coverage
    assert (coverage.integers, coverage.gaps) == ({"inputs_0": 1}, ("inputs_0 always 0",))


def test_state_that_no_call_reads_is_told():
    (coverage,) = verified(Counts(), (X,)).coverage
    assert coverage.gaps == ("state `count` not read in 16 calls",)


def test_state_that_another_method_reads_by_another_name_is_not_told():
    class Reads(torch.nn.Module):
        def __init__(self, counts):
            super().__init__()
            self.counts = counts

        def forward(self, x):
            return x * self.counts.count

    counts = Counts()
    lowered = Lowerer([]).lower({"count": (counts, (X,)), "read": (Reads(counts), (X,))})
    assert [own.gaps for own in lowered.verify(runner="python").coverage] == [(), ()]


def test_a_counter_beyond_its_limit_was_read_below_it():
    class Warm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return x * torch.where(self.count > 3, 2.0, 1.0)

    assert verified(Warm(), (X,)).coverage[0].gaps == ()


def test_state_that_an_earlier_call_reads_is_not_told():
    class Cache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(4, 3))

        def forward(self, x, position):
            self.keys.index_copy_(0, position, x)
            past = torch.arange(4) <= position
            return (self.keys * past[:, None]).sum(0)

    # The last call is the example again, which has no past.
    inputs = (X[:1], torch.tensor([0]))
    (coverage,) = Lowerer([]).lower(Cache(), inputs).verify(runner="python").coverage
    assert coverage.gaps == ()


def test_the_recorded_seed_makes_the_same_calls_again(monkeypatch):
    lowered = Lowerer([]).lower(
        Function(torch.sin), (X,), dynamic_shapes=[({0: Dim("rows", max=500)},)]
    )
    once, again = lowered.verify(runner="python"), lowered.verify(runner="python")
    assert once.seed == again.seed
    assert once.coverage == again.coverage
    monkeypatch.setattr("etdev.verify.inputs.SEED", once.seed + 1)
    assert lowered.verify(runner="python").coverage != once.coverage


class Counter(torch.nn.Module):
    """Every third call doubles its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        self.calls.add_(1)
        third = self.calls[0] % 3 == 0
        return torch.cond(third, lambda x: x * 2, lambda x: x - 1, (x,))


def test_a_branch_that_state_decides_is_taken():
    result = Lowerer([]).lower(Counter(), (X,)).verify(runner="python")
    (coverage,) = result.coverage
    assert coverage.gaps == ()
    assert [sorted(sides) for sides in coverage.branches.values()] == [[False, True]]
