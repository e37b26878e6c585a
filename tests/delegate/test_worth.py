"""Which calls are worth a worker of ours, by what this process has compiled itself."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from toys.moody import Moody

from etdev import Lowerer
from etdev.delegate.compiler_calls import calls_of
from etdev.delegate.executors.lanes import Given
from etdev.delegate.executors.processes import Processes
from etdev.delegate.executors.worth import HERE, Worth
from etdev.delegate.jobs import batches, jobs_of
from etdev.delegate.split import split
from etdev.registry.selection import from_object

STAYED = f"compiled in this process: {HERE}"


class Begun(Processes):
    """A fake: one worker that took 4 s to begin; what a real one takes differs each time."""

    ready = 1
    begins_s = 4.0


class Layers(nn.Module):
    """Two additions of one shape, then three products of another, each apart from the others."""

    def forward(self, x):
        for _ in range(2):
            x = torch.cumsum(x + x, 0)
        x = torch.cumsum(x[:, :2], 1)
        for _ in range(3):
            x = torch.cumsum(x * x, 0)
        return x


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The five calls of a lowering, which nobody compiles."""
    plugin = Moody(str(tmp_path_factory.mktemp("moody") / "log"))
    decision = Lowerer([plugin]).decide(Layers(), (torch.randn(3, 4),))
    splits = [split(p, decision.plan[name].partitions) for name, p in decision.programs.items()]
    (batch,) = batches(jobs_of(splits))
    return calls_of(batch, from_object(plugin))


@pytest.fixture
def worth():
    return Worth()


def ago(call, seconds):
    return call, time.perf_counter() - seconds


def test_what_was_compiled_tells_what_its_like_takes(calls, worth):
    add, again, mul = calls[:3]
    assert worth.pace.seconds(add) is None
    worth.pace.note(add, 3.0)
    assert [worth.pace.seconds(call) for call in (again, mul)] == [3.0, 3.0]
    # The second of a kind is quicker, which says nothing of other kinds.
    worth.pace.note(again, 0.5)
    assert [worth.pace.seconds(call) for call in (add, mul)] == [0.5, 3.0]
    assert worth.pace.total(calls) == 2 * 0.5 + 3 * 3.0


def test_alike_calls_are_sent_together(calls, worth):
    mixed = [calls[2], calls[0], calls[3], calls[1], calls[4]]
    kinds = [worth.pace.kind(call) for call in sorted(mixed, key=worth.pace.order(mixed))]
    assert kinds == sorted(kinds, key=kinds.index)


def test_of_what_may_take_minutes_each_worker_gets_one_call_and_this_process_one(calls, worth):
    lane = Begun(1)
    assert worth.sends(calls, [], lane)
    assert not worth.sends(calls[1:], [ago(calls[0], 0)], lane)
    assert not worth.sends(calls[:1], [], lane)


def test_a_call_is_sent_if_a_worker_is_free_before_this_process_is(calls, worth):
    lane, quick = Begun(1), Worth()
    quick.pace.note(calls[0], 0.5)
    assert not quick.sends(calls, [], lane), "four others take 2 s, a worker 4 until it is at it"
    worth.pace.note(calls[0], 2.0)
    assert worth.sends(calls, [], lane), "four others take 8 s"
    worth.answered()
    assert worth.sends(calls[:2], [], lane), "the worker can begin at once"
    assert worth.sends(calls[:3], [ago(calls[3], 0)], lane), "it is free in 2 s, this one in 4"
    assert not worth.sends(calls[:2], [ago(calls[3], 0), ago(calls[4], 0)], lane), "4 s, and 2"


def test_a_call_that_takes_no_longer_than_to_send_it_stays(calls, worth):
    worth.pace.note(calls[0], 0.01)
    worth.answered()
    assert worth.sends(calls, [], Begun(1))
    with worth.sending():
        time.sleep(0.02)
    assert not worth.sends(calls, [], Begun(1))


def test_an_executor_of_the_users_gets_everything(calls, worth):
    worth.pace.note(calls[0], 0.01)
    with ThreadPoolExecutor(1) as threads:
        lane = Given(threads)
        assert worth.sends(calls[:1], [ago(calls[1], 0)], lane)
        assert worth.late([ago(calls[1], 600)], lane) is None
        assert worth.patience_s([ago(calls[1], 600)], lane) is None
        assert worth.stays(calls[0], [], lane) == ""


def test_what_is_sooner_done_here_or_late_is_taken_back(calls, worth):
    lane = Begun(1)
    assert worth.late([ago(calls[0], 60)], lane) is None, "nobody knows what it takes"
    worth.pace.note(calls[0], 10.0)
    assert worth.late([ago(calls[0], 1)], lane) == 0, "10 s here, 13 more there"
    assert worth.late([ago(calls[0], 5)], lane) is None, "9 more there"
    assert worth.patience_s([ago(calls[0], 5)], lane) == pytest.approx(23, abs=1)
    assert worth.late([ago(calls[0], 29)], lane) == 0, "twice the 14 s that it should take"


def test_a_slow_worker_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(Processes, "start", Processes.check)
    plugin = Moody(str(tmp_path / "log"), dawdles=30)
    lowered = Lowerer([plugin], jobs=2, cache=False).lower(Layers(), (torch.randn(3, 4),))
    here = [op for process, op in plugin.calls() if process == os.getpid()]
    assert sorted(here) == ["aten.add.Tensor"] * 2 + ["aten.mul.Tensor"] * 3
    assert {outcome.why for outcome in lowered.outcomes} == {"", STAYED}
