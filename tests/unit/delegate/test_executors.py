"""Partitions compiled elsewhere: the same bytes, whoever compiles and whatever happens to them."""

import os
import platform
import re
import subprocess
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch
from support.models import nets
from support.models.matrix import SMALL
from support.quirks import model
from support.toys.keys import keys
from support.toys.moody import Moody
from torch import nn

from etdev import Lowerer
from etdev.delegate.executors import dispatch
from etdev.delegate.executors.processes import start_process
from etdev.errors import CompileError, EtdevError
from etdev.registry import watchdog

ADD, MUL, SUB = "aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"
X = torch.randn(3, 4)


class Net(nn.Module):
    """An addition, a product and a difference, each apart from the others."""

    def forward(self, x):
        return torch.cumsum(torch.cumsum(x + x, 0) * 3, 0) - x


class Outer(Executor):
    """An executor with one process that is not etdev's own."""

    def __init__(self):
        self.processes = start_process()

    def submit(self, function, *arguments):
        return self.processes.submit(function, *arguments)

    def shutdown(self, **how):
        """Go on: `close` ends it."""

    def close(self):
        self.processes.shutdown(kill_workers=True)


@pytest.fixture(scope="module")
def worker():
    """One worker process for several tests, since each takes seconds to start."""
    outer = Outer()
    with pytest.MonkeyPatch.context() as patch:
        # Another seed than this process has.
        patch.setenv("PYTHONHASHSEED", "7")
        outer.submit(os.getpid).result()
    yield outer
    outer.close()


@pytest.fixture
def moody(tmp_path):
    def make(**moods):
        return Moody(str(tmp_path / "log"), **moods)

    return make


def lowered_bytes(lowerer, *model):
    lowered = lowerer.lower(*model)
    return bytes(lowered.to_executorch().buffer), {outcome.why for outcome in lowered.outcomes}


@pytest.mark.slice("conv_net")
@pytest.mark.parametrize("name", ["conv_net", "two_methods", "kv_cache", "int8_conv_net"])
def test_a_worker_compiles_the_same_bytes(name, worker):
    programs = dict(SMALL[name]().programs)
    here = lowered_bytes(Lowerer(["cpu"]), programs)
    assert lowered_bytes(Lowerer(["cpu"], executor=worker), programs) == here
    assert here[1] == {""}


def test_the_process_and_its_hash_seed_do_not_count_in_keys(worker):
    assert worker.submit(os.getenv, "PYTHONHASHSEED").result() == "7"
    assert worker.submit(keys, *nets.mlp()).result() == keys(*nets.mlp())


def test_threads_take_turns_and_compile_the_same_bytes():
    here = lowered_bytes(Lowerer(["cpu"]), *nets.mlp())
    with ThreadPoolExecutor(3) as threads:
        assert lowered_bytes(Lowerer(["cpu"], executor=threads), *nets.mlp()) == here


@pytest.mark.suite
def test_the_worker_compiles_and_its_weights_come_along(worker, moody):
    plugin = moody()
    Lowerer([plugin], executor=worker).lower(Net(), (X,))
    assert plugin.ops() == [ADD, MUL, SUB]
    assert os.getpid() not in {process for process, _ in plugin.calls()}


@pytest.fixture
def ready(worker, monkeypatch):
    """A process of etdev's own that has begun before there is a task."""
    worker.submit(os.getpid).result()
    monkeypatch.setattr(dispatch, "start_process", lambda: worker)


def test_jobs_share_the_work_and_compile_the_same_bytes(ready, moody):
    plugin = moody()
    there = Lowerer([plugin], jobs=2).lower(Net(), (X,))
    assert {outcome.why for outcome in there.outcomes} == {""}
    assert plugin.ops() == [ADD, MUL, SUB]
    assert len({process for process, _ in plugin.calls()}) == 2
    here = Lowerer([moody()]).lower(Net(), (X,))
    assert there.to_executorch().buffer == here.to_executorch().buffer


def test_a_dynamic_size_is_compiled_here_and_says_so(worker):
    programs = dict(SMALL["dynamic_batch"]().programs)
    here, _ = lowered_bytes(Lowerer(["cpu"]), programs)
    there, why = lowered_bytes(Lowerer(["cpu"], executor=worker), programs)
    assert here == there
    assert why == {
        f"compiled in this process: {name} has a dynamic size, which means nothing in another "
        "process"
        for name in ("input_1", "getitem")
    }


def test_an_annotation_that_cannot_be_written_down_is_compiled_here(worker, moody):
    plugin = moody(note=object())
    lowered = Lowerer([plugin], executor=worker).lower(Net(), (X,))
    assert {process for process, _ in plugin.calls()} == {os.getpid()}
    assert all("a value of object" in outcome.why for outcome in lowered.outcomes)


def test_a_plugin_that_cannot_be_imported_is_compiled_here(worker, tmp_path):
    class Local(Moody):
        pass

    plugin = Local(str(tmp_path / "log"))
    lowered = Lowerer([plugin], executor=worker).lower(Net(), (X,))
    assert {process for process, _ in plugin.calls()} == {os.getpid()}
    (why,) = {outcome.why for outcome in lowered.outcomes}
    assert why.startswith("compiled in this process: plugin moody: ")


def test_an_error_of_a_worker_is_that_of_this_process_with_its_whole_cause(worker, moody):
    with pytest.raises(CompileError) as here:
        Lowerer([moody(fails=MUL)]).lower(Net(), (X,))
    with pytest.raises(CompileError) as there:
        Lowerer([moody(fails=MUL)], executor=worker).lower(Net(), (X,))
    assert str(there.value) == str(here.value)
    cause = str(there.value.__cause__)
    assert "ValueError: not in the mood" in cause
    assert "KeyError: 'the real cause'" in cause


def test_a_failure_in_a_worker_gives_the_plan_of_one_in_this_process(worker, moody):
    plugins = [moody(fails=MUL), "cpu"]
    here = Lowerer(plugins, on_failure="fallback").lower(Net(), (X,))
    there = Lowerer(plugins, on_failure="fallback", executor=worker).lower(Net(), (X,))
    assert there.plan == here.plan
    assert there.to_executorch().buffer == here.to_executorch().buffer


def test_workers_share_the_cache(worker, moody, tmp_path):
    plugin, cache = moody(), tmp_path / "cache"
    first = Lowerer([plugin], executor=worker, cache=cache).lower(Net(), (X,))
    again = Lowerer([plugin], cache=cache).lower(Net(), (X,))
    assert [o.state for o in first.outcomes] == ["compiled"] * 3
    assert [o.state for o in again.outcomes] == ["hit"] * 3
    assert len(plugin.calls()) == 3
    assert first.to_executorch().buffer == again.to_executorch().buffer


class Gone(Executor):
    """A fake: an executor whose cluster goes away after some orders; no real one does on demand."""

    def __init__(self, inner, most):
        self.inner, self.left = inner, most

    def submit(self, function, *arguments):
        self.left -= 1
        if self.left >= 0:
            return self.inner.submit(function, *arguments)
        lost = Future()
        lost.set_exception(BrokenProcessPool("the cluster went away"))
        return lost


def test_what_an_executor_loses_is_an_error_that_names_it(worker, moody):
    lowerer = Lowerer([moody(), "cpu"], executor=Gone(worker, 1), on_failure="fallback")
    with pytest.raises(CompileError) as caught:
        lowerer.lower(Net(), (X,))
    assert re.fullmatch(
        r"moody: MoodyBackend on forward/moody_\d was lost by a worker of the Gone: "
        r"BrokenProcessPool: the cluster went away; see what it logs, or lower without executor=",
        str(caught.value),
    )


def limited(limit_s):
    return {"moody": {"compile_timeout_s": limit_s}}


def its_verdict(lowered, op):
    """The verdict on a node that another plugin had to take; nothing of it is compiled here."""
    plan = lowered.plan["forward"]
    assert plan.ledger.owned() == {"moody": 2, "cpu": 1, "portable": 2}
    (verdict, _) = plan.ledger[op].verdicts
    assert verdict.code == "compile-failed"
    return verdict.text


@pytest.mark.suite
def test_a_call_that_kills_its_process_is_its_fault_and_the_others_go_on(moody, tmp_path):
    plugin = moody(dies=MUL)
    given = {"jobs": 2, "limits": limited(300), "cache": tmp_path, "on_failure": "fallback"}
    lowered = Lowerer([plugin, "cpu"], **given).lower(Net(), (X,))
    assert os.getpid() not in {process for process, _ in plugin.calls()}
    text = its_verdict(lowered, "aten_mul_tensor")
    assert "its compiler failed: TerminatedWorkerError" in text


@pytest.mark.suite
def test_a_process_that_compiles_for_too_long_is_ended_and_the_others_go_on(moody):
    """Its first compile takes some seconds on a busy machine."""
    plugin = moody(sleeps=MUL)
    given = {"jobs": 2, "limits": limited(20), "on_failure": "fallback"}
    lowered = Lowerer([plugin, "cpu"], **given).lower(Net(), (X,))
    assert os.getpid() not in {process for process, _ in plugin.calls()}
    text = its_verdict(lowered, "aten_mul_tensor")
    assert text.endswith("its process was ended after 20 s")


@pytest.mark.suite
def test_a_worker_of_the_users_that_took_too_long_is_an_error_that_names_it(worker, moody):
    """A slow call is refused, and its worker is not ended: it is not ours."""
    Lowerer(["cpu"], executor=worker).lower(Net(), (X,))
    plugin = moody(dawdles=1.5)
    with pytest.raises(CompileError) as caught:
        Lowerer([plugin], executor=worker, limits=limited(1)).lower(Net(), (X,))
    ((process, _), *_) = plugin.calls()
    assert re.match(
        rf"moody: MoodyBackend on forward/moody_\d in process {process} of {platform.node()} "
        r"took more than 1 s; ",
        str(caught.value),
    )


class Frozen(Executor):
    """A fake: a cluster that takes orders and never answers; no real one does on demand."""

    def submit(self, function, *arguments):
        return Future()


def test_a_frozen_cluster_is_named_and_an_error_after_the_time_limit(moody, monkeypatch):
    told = []
    monkeypatch.setattr(dispatch, "GRACE_S", 1.0)
    monkeypatch.setattr(watchdog, "PATIENCE_S", 0.1)
    lowerer = Lowerer(
        [moody()],
        executor=Frozen(),
        limits=limited(1),
        listener=lambda stage, detail: told.append(stage),
    )
    with pytest.raises(
        CompileError, match=r"moody_\d was lost by a worker of the Frozen: "
    ) as caught:
        lowerer.lower(Net(), (X,))
    assert "TimeoutError: no answer in 2 s; " in str(caught.value)
    assert any(stage.endswith(" in a worker of the Frozen") for stage in told)


@pytest.mark.matrix
def test_a_call_that_freezes_its_process_is_an_error_that_names_it(moody, monkeypatch):
    monkeypatch.setattr(dispatch, "GRACE_S", 20)
    with pytest.raises(CompileError) as caught:
        Lowerer([moody(freezes=MUL)], jobs=2, limits=limited(10)).lower(Net(), (X,))
    assert str(caught.value).startswith("moody: MoodyBackend failed on forward/moody_1 ")
    assert "its process was ended after 10 s; " in str(caught.value)


# Without a guard of `__main__`, as scripts are; Ctrl-C comes once the first partition is compiled.
INTERRUPTED = """
import signal, sys
print("main runs", flush=True)
import torch
from support.models import nets
from etdev import Lowerer

class Impatient:
    def __call__(self, stage, detail):
        pass
    def step(self, step):
        if step.state == "compiled":
            signal.raise_signal(signal.SIGINT)

try:
    Lowerer(["cpu"], jobs=2, cache=sys.argv[1], listener=Impatient()).lower(*nets.mlp())
except KeyboardInterrupt:
    import psutil
    lines = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    print("interrupted", sum("popen_loky" in line for line in lines))
lowered = Lowerer(["cpu"], cache=sys.argv[1]).lower(*nets.mlp())
print("hit" in {outcome.state for outcome in lowered.outcomes})
"""


@pytest.mark.suite
def test_ctrl_c_ends_the_workers_and_what_is_compiled_stays(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    path = os.pathsep.join([str(Path(nets.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script, tmp_path / "cache"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == ["main runs", "interrupted 0", "True"], done.stderr


@pytest.mark.suite
def test_a_dask_cluster_compiles_the_same_bytes():
    distributed = pytest.importorskip("distributed")
    # One large weight in two partitions.
    twice = model(
        lambda net, x: net.linear(torch.cumsum(net.linear(x), 0)),
        linear=nn.Linear(256, 256, bias=False),
    )
    given = twice, (torch.randn(2, 256),)
    here = lowered_bytes(Lowerer(["cpu"]), *given)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        executor = client.get_executor()
        assert lowered_bytes(Lowerer(["cpu"], executor=executor), *given) == here


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"executor": object()}, r"^Lowerer: 'executor' must be <class '.*Executor'>"),
        ({"jobs": 0}, r"^Lowerer: 'jobs' must be >= 1: 0"),
        ({"jobs": "2"}, r"^jobs: is '2'; it must be a whole number$"),
    ],
)
def test_what_is_not_an_executor_or_a_number_of_jobs_is_refused(given, said):
    with pytest.raises(EtdevError, match=said):
        Lowerer([], **given)
