"""Two calls with the same inputs must agree: state outside of buffers is refused by name."""

from __future__ import annotations

import itertools
import random
import threading
import time
import warnings
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan

from etdev import Lowerer
from etdev.edge.source import export
from etdev.errors import EtdevWarning, SourceError
from etdev.quirks import QUIRKS
from etdev.quirks.table import Fixer, Table
from etdev.quirks.variables import variables_of
from etdev.schema.method import Method

X = torch.tensor([1.0, 2.0, 3.0])
CURE = (
    "keep it in a registered buffer and write to that in place, as self.state.copy_(new) does, or "
    "give it as an input"
)
CONSTANT = "torch.export baked in a value that changes between calls: "
COUNTS = {"calls": 0}


class Holder(nn.Module):
    """A module that holds state of several kinds, and what is done with it."""

    def __init__(self, call):
        super().__init__()
        self.register_buffer("state", torch.ones(3))
        self.register_buffer("count", torch.tensor(0))
        self.calls, self.parts, self.plain = 0, [], torch.ones(3)
        self.inner = SimpleNamespace(plain=torch.ones(3), calls=0)
        self.call = [call]

    def forward(self, x):
        return self.call[0](self, x)


class Slots:
    """An object without a dict."""

    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0


def counts(self, x):
    self.calls += 1
    return x * self.calls


def collects(self, x):
    self.parts.append(x)
    return sum(self.parts)


def replaces(self, x):
    self.plain = self.plain * x
    return self.plain + 1


def replaces_within(self, x):
    self.inner.plain = self.inner.plain * x
    return self.inner.plain + 1


def in_a_global(self, x):
    COUNTS["calls"] += 1
    return x * COUNTS["calls"]


def in_a_class(self, x):
    Slots.total = getattr(Slots, "total", 0) + 1
    return x * Slots.total


def closure():
    calls = 0

    def in_a_closure(self, x):
        nonlocal calls
        calls += 1
        return x * calls

    return in_a_closure


def in_a_default(self, x, calls=[]):  # noqa: B006
    calls.append(1)
    return x * len(calls)


def in_a_count(self, x):
    return x * next(self.held["count"])


def in_an_iterator(self, x):
    return x * next(self.held["iterator"])


def in_a_generator(self, x):
    if "generator" not in self.held:
        self.held["generator"] = (number for number in range(9))
    return x * next(self.held["generator"])


def in_a_deque(self, x):
    self.held["deque"].rotate(1)
    return x * self.held["deque"][0]


def in_an_array(self, x):
    self.held["array"] += 1
    return x * float(self.held["array"][0])


def in_slots(self, x):
    self.held["slots"].calls += 1
    return x * self.held["slots"].calls


def in_bytes(self, x):
    self.held["bytes"][0] += 1
    return x * self.held["bytes"][0]


def in_a_new_buffer(self, x):
    COUNTS["calls"] += 1
    self.state.mul_(COUNTS["calls"])
    return x


def draws_in_python(self, x):
    return x * random.random()


def draws_in_numpy(self, x):
    return x * float(np.random.rand())


def reads_a_clock(self, x):
    return x * (time.perf_counter_ns() % 1000)


def calls_once(self, x):
    if "called" in self.held:
        raise ValueError("called")
    self.held["called"] = Slots()
    return x * 2


def state():
    """Make an object of each kind of state in Python."""
    return {
        "count": itertools.count(),
        "iterator": iter(range(9)),
        "deque": deque([1, 2, 3]),
        "array": np.zeros(1),
        "slots": Slots(),
        "bytes": bytearray(1),
    }


def refusal(module):
    with pytest.raises(SourceError) as caught:
        export(Method("forward", module, (X,)), Fixer(Table(QUIRKS)))
    return str(caught.value)


def differ(place):
    told = "forward: two calls with the same inputs and buffers differ; "
    return f"{told}{CONSTANT}{place}; {CURE}"


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (counts, "self.calls"),
        (collects, "self.parts[0], self.parts[1]"),
        (replaces, "self.plain"),
        (replaces_within, "self.inner.plain"),
        (in_a_global, f"{__name__}.COUNTS['calls']"),
        (in_a_class, f"{__name__}.Slots.total"),
        (closure(), "in_a_closure.calls"),
        (in_a_default, "in_a_default.calls[0], in_a_default.calls[1]"),
        (in_a_count, "self.held['count']"),
        (in_an_iterator, "self.held['iterator']"),
        (in_a_deque, "self.held['deque']"),
        (in_an_array, "self.held['array']"),
        (in_slots, "self.held['slots']"),
        (in_bytes, "self.held['bytes']"),
        (in_a_new_buffer, f"{__name__}.COUNTS['calls']"),
        (draws_in_python, "random numbers of Python"),
        (draws_in_numpy, "random numbers of NumPy"),
        (reads_a_clock, f"{__name__}.time"),
        (in_a_generator, "self.held['generator']"),
        (calls_once, "self.held['called']"),
    ],
)
def test_state_in_python_is_refused(call, place):
    module = Holder(call)
    module.held = state()
    assert refusal(module) == differ(place)
    assert torch.equal(module.state, torch.ones(3))


def test_state_beside_a_scan_of_several_carries_is_refused():
    def step(carried, row):
        return (carried[0] + row, carried[1] * row), carried[0] * 2

    def scans(self, x):
        self.calls += 1
        both, rows = scan(step, (torch.zeros(1), torch.ones(1)), x[:, None], dim=0)
        return rows * self.calls, both

    assert refusal(Holder(scans)) == differ("self.calls")


def test_state_of_a_hook_is_refused():
    calls = []
    module = nn.Linear(3, 3)
    module.register_forward_hook(
        lambda module, inputs, output: calls.append(1) or output * len(calls)
    )
    assert refusal(module) == differ("<lambda>.calls[0], <lambda>.calls[1]")


def late_in_a_global(self, x):
    COUNTS["calls"] += 1
    return x * (1 + (COUNTS["calls"] > 6))


def late_in_a_closure():
    calls = 0

    def in_a_closure(self, x):
        nonlocal calls
        calls += 1
        return x * (1 + (calls > 50))

    return in_a_closure


def late_in_a_list(self, x):
    self.parts.append(1)
    return x * (1 + (len(self.parts) > 6))


def late_in_a_generator(self, x):
    if "generator" not in self.held:
        self.held["generator"] = (1 + (number > 6) for number in range(9))
    return x * next(self.held["generator"])


def late_in_a_tensor():
    count = torch.zeros(1)

    def in_a_tensor(self, x):
        nonlocal count
        count = count + 1
        return x * (1 + (count > 6))

    return in_a_tensor


class Late:
    """An object that is called, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, module, x):
        self.calls += 1
        return x * (1 + (self.calls > 6))


LATE_BUFFERS = ", ".join(
    f"self.held['norm']._buffers['{name}']"
    for name in ("num_batches_tracked", "running_mean", "running_var")
)


def late_in_a_module(self, x):
    self.held["norm"](x.expand(4, 3))
    return x * (1 + (self.held["norm"].num_batches_tracked > 6))


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (late_in_a_tensor(), "in_a_tensor.count"),
        (Late(), "self.call[0].calls"),
        (late_in_a_module, LATE_BUFFERS),
        (late_in_a_global, f"{__name__}.COUNTS['calls']"),
        (late_in_a_closure(), "in_a_closure.calls"),
        (late_in_a_list, "self.parts[1]"),
        (late_in_a_generator, "self.held['generator']"),
    ],
)
def test_state_that_matters_only_in_later_calls_is_warned_of(call, place):
    # The next test shows that such a method is never verified.
    COUNTS["calls"] = 0
    module, fixer = Holder(call), Fixer(Table(QUIRKS))
    module.held = {"norm": nn.BatchNorm1d(3)}
    with pytest.warns(EtdevWarning, match="^forward: torch.export baked in a value"):
        export(Method("forward", module, (X,)), fixer)
    assert fixer.doubts == {"forward": CONSTANT + place}


def far_in_a_global(self, x):
    COUNTS["calls"] += 1
    return x * (1 + (COUNTS["calls"] > 10**6))


def reads_the_day(self, x):
    return x * (1 + int(time.time()) // 86400)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (far_in_a_global, f"{__name__}.COUNTS['calls']"),
        (reads_the_day, f"{__name__}.time"),
        (lambda self, x: x * (random.random() < 2), "random numbers of Python"),
    ],
)
def test_what_changes_without_effect_so_far_is_never_verified(call, place):
    # No number of calls shows that a later one is the same.
    with pytest.warns(EtdevWarning, match="^forward: torch.export baked in a value"):
        lowered = Lowerer([]).lower(Holder(call), (X,))
    found = lowered.verify()
    assert (found.calls, found.unverified) == (0, (f"method 'forward': {CONSTANT}{place}",))


@pytest.mark.parametrize("call", ["returns_the_old", "makes_it_a_float", "grows", "replaces_data"])
@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_buffers_that_torch_export_replaces_otherwise_are_refused(call):
    calls = {
        "returns_the_old": (returns_the_old, "self.state"),
        "makes_it_a_float": (makes_it_a_float, "self.count"),
        "grows": (grows, "self.state"),
        "replaces_data": (replaces_data, "self.state"),
    }
    function, name = calls[call]
    told = f"forward: assigns to {name}, which torch.export does not preserve; {CURE}"
    assert refusal(Holder(function)) == told


def returns_the_old(self, x):
    old, self.state = self.state, self.state + x
    return old


def makes_it_a_float(self, x):
    self.count = self.count + x.mean() / 4
    return x * self.count


def grows(self, x):
    self.state = torch.cat([self.state, x])
    return self.state.sum()


def replaces_data(self, x):
    self.state.data = self.state * x
    return self.state + 1


def keeps_the_first(self, x):
    self.plain = self.parts[0] if self.parts else x * 2
    self.parts[:] = [self.plain]
    return self.plain + self.state


def test_what_is_kept_of_the_first_inputs_is_refused():
    told = "forward: assigns to self.parts[0], self.plain, which torch.export does not preserve; "
    assert refusal(Holder(keeps_the_first)) == told + CURE


def cached(self, x):
    self.state[1:] = self.state[:-1].clone()
    self.state[0] = x.sum()
    return self.state * x


def scaled_weights(self, x):
    self.layer.weight.mul_(0.5)
    return self.layer(x)


def calls_a_shared_module(self, x):
    rows = x.expand(4, 3).T[None]
    return self.shared[0](self.shared[1](rows)).sum() * self.shared[0].running_mean + self.alias


def memoised(self, x):
    if "table" not in COUNTS:
        COUNTS["table"] = torch.arange(3.0)
    return x + COUNTS["table"]


class Lazy(dict):
    """A dict that does much when it is asked for its items."""

    def items(self):
        raise AssertionError("asked")


LAZY = Lazy(scale=2)


@pytest.mark.parametrize(
    "call",
    [
        cached,
        lambda self, x: x * LAZY["scale"],
        scaled_weights,
        memoised,
        calls_a_shared_module,
        lambda self, x: nn.functional.dropout(x, training=False),
        lambda self, x: x * self.state.add_(1),
        lambda self, x: self.norm(x.expand(4, 3)),
        lambda self, x: nn.functional.dropout(x) + torch.rand(3) + torch.randn_like(x),
        lambda self, x: torch.zeros(3).index_put((torch.zeros(3).long(),), x, accumulate=True),
        lambda self, x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
        lambda self, x: (x, "text", None, {"n": 3}),
        # Another function reads a value with NaN.
        lambda self, x: (lambda far: (lambda: far * 2)())(torch.where(x > 0, torch.nan, x)),
    ],
)
def test_ordinary_models_are_exported(call):
    COUNTS.pop("table", None)
    module = Holder(call)
    module.layer, module.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
    module.shared = nn.Sequential(*[nn.InstanceNorm1d(3, track_running_stats=True)] * 2)
    module.register_buffer("alias", module.shared[0].running_mean)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    drawn = torch.get_rng_state(), random.getstate()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=EtdevWarning, message=".*baked in a value")
        export(Method("forward", module, (X,)), Fixer(Table(QUIRKS)))
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]


def test_a_module_that_can_not_be_copied_is_called_itself():
    module = nn.utils.weight_norm(nn.Linear(3, 3))
    module.lock = threading.Lock()
    program = export(Method("forward", module, (X,)), Fixer(Table(QUIRKS)))
    torch.testing.assert_close(program.module()(X), module(X))
    module = Holder(in_an_iterator)
    module.held = {"iterator": (number for number in range(9))}
    assert refusal(module) == differ("self.held['iterator']")


def test_a_number_that_changes_nothing_yet_is_named_once():
    def logs(self, x):
        self.inner.calls += 1
        return x * 2

    module = Holder(logs)
    with pytest.warns(EtdevWarning) as told:
        export(Method("forward", module, (X,)), Fixer(Table(QUIRKS)))
    expected = f"forward: {CONSTANT}self.inner.calls; {CURE}"
    own = [warning for warning in told if warning.category is EtdevWarning]
    assert [str(warning.message) for warning in own] == [expected]
    assert not module._forward_hooks
    assert not module._forward_pre_hooks


def test_an_attribute_is_not_the_global_of_its_name():
    def attribute(self, x):
        return x * self.COUNTS

    def variable(self, x):
        return x * COUNTS["calls"]

    named = [
        any("COUNTS" in known.name for known in variables_of(Holder(call)))
        for call in (attribute, variable)
    ]
    assert named == [False, True]


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_what_is_assigned_and_not_read_by_later_calls_is_fine():
    def stashes(self, x):
        self.calls, self.plain, self.parts = x.shape[0], x * 2, [x]
        return self.plain + self.state

    with warnings.catch_warnings():
        warnings.simplefilter("error", EtdevWarning)
        program = export(Method("forward", Holder(stashes), (X,)), Fixer(Table(QUIRKS)))
    assert torch.equal(program.module()(X), X * 2 + 1)


def test_a_buffer_may_be_assigned_to():
    def carries(self, x):
        self.state = self.state * x
        return self.state + 1

    module = Holder(carries)
    lowered = Lowerer([]).lower(module, (X,))
    lowered.verify(steps=3)
    assert torch.equal(module.state, torch.ones(3))
