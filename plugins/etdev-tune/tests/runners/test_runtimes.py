"""Measurements in another runtime than executorch.runtime: C++, or the one of a plugin."""

from __future__ import annotations

import os

import psutil
import pytest
import torch
from etdev_cpp import build
from etdev_cpp.libraries import installed
from etdev_cpp.runner import RUNNER
from etdev_tune.builder import Builder
from etdev_tune.exchange import Failure, Policy, Request, Result
from etdev_tune.runners import Local, runtimes
from support.models import nets
from support.models.matrix import SMALL
from support.models.small import Function
from support.shell.distributions import put
from support.toys.accelerator import Accelerator
from support.toys.bits import same

import etdev
from etdev import Device, Lowerer, hookimpl
from etdev.errors import PluginError, RunError
from etdev.pte.read import read
from etdev.registry.selection import from_object
from etdev.runtime.run import run_series
from etdev.runtime.runners import named
from etdev.runtime.worker import Program

MODULE, INPUTS = nets.mlp()
QUICK = {"warmup": 1, "repetitions": 4, "seconds": 0.05, "warmup_s": 0.001}


class OwnRuntime(Accelerator):
    """A plugin whose delegates run in a runtime of its vendor."""

    @hookimpl
    def runner_for(self, backend_id):
        return "loader" if backend_id == "FakeAccelerator" else None


PLUGIN = OwnRuntime(ops=("add.Tensor",), device=Device("cuda", 0))
SUMMANDS = (torch.tensor([[1.0, float("nan")], [float("inf"), -2.0]]), torch.ones(2, 2))


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory):
    """A program with a delegate that only the plugin's runtime has."""
    lowered = Lowerer([PLUGIN]).lower(Function(torch.add), SUMMANDS)
    return lowered.save(tmp_path_factory.mktemp("cuda") / "cuda.pte")


@pytest.fixture
def cpp():
    """The name of the C++ runner, whose process is ended."""
    if not build.find() or not installed():
        pytest.skip("there is no C++ compiler here, or no library of ExecuTorch for C++")
    yield "cpp"
    named("cpp").close()


@pytest.fixture
def target():
    """Make targets on this machine, and close them."""
    made = []

    def local(*args):
        made.append(Local(*args))
        return made[-1]

    yield local
    for one in made:
        one.close()


def test_the_cpp_runtime_is_timed_and_its_state_goes_on_from_set_to_set(cpp, target, tmp_path):
    case = SMALL["kv_cache"]()
    path = Lowerer(["cpu"]).lower(dict(case.programs)).save(tmp_path / "net.pte")
    (facts,) = read(path).methods
    sets = tuple(inputs for _, inputs in case.calls)
    request = Request(path, sets, outputs=True, timed=(0,), **QUICK)
    result = target((), cpp).run(request)
    assert isinstance(result, Result), result
    expected = run_series(path, [(facts, inputs) for inputs in sets]).values
    for outputs, wanted in zip(result.outputs, expected, strict=True):
        assert all(map(same, outputs, wanted.outputs))
    assert [len(times) for times in result.times_ns] == [4, *(0 for _ in sets[1:])]
    assert min(result.times_ns[0]) > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_has_the_threads_that_the_request_says(cpp, threads, monkeypatch, mlp_pte):
    counts = []

    def counted(*_):
        named("cpp").load(Program.of(mlp_pte, read(mlp_pte).methods), "forward")
        process = psutil.Process(RUNNER._child._process.pid)
        counts.append((process.num_threads(), len(process.cpu_affinity())))

    if len(os.sched_getaffinity(0)) < threads:
        pytest.skip("this machine has one processor")
    before = dict(os.environ), os.sched_getaffinity(0)
    monkeypatch.setattr(runtimes, "_result", counted)
    runtimes.measured(named("cpp"), Request(mlp_pte, (INPUTS,), threads=threads))
    # One more waits for the end of its input.
    assert counts == [(threads + 1, threads)]
    assert (dict(os.environ), os.sched_getaffinity(0)) == before


def test_a_program_that_the_runtime_refuses_or_hangs_in_is_a_finding(cpp, target, on_cuda, mlp_pte):
    local = target((), cpp)
    late = local.run(Request(mlp_pte, (INPUTS,), timeout_s=0.0, **QUICK))
    assert str(late) == "refused: cpp: the process took longer than 0 s; see etdev check"
    lacking = local.run(Request(on_cuda, (SUMMANDS,), **QUICK))
    assert str(lacking).startswith("refused: cpp: the C++ runtime failed with Error::")
    with pytest.raises(RunError, match="input 0 is float32 3x3; it takes float32 2x8"):
        local.run(Request(mlp_pte, ((torch.ones(3, 3),),), **QUICK))


@pytest.mark.suite
def test_a_tuning_in_cpp_says_so(cpp, tmp_path):
    tuning = etdev.tune(
        *(MODULE, INPUTS, tmp_path / "net.pte"),
        plugins=["cpu"],
        runner=cpp,
        budget_s=1,
        policy=Policy(**QUICK),
        store=False,
    )
    assert tuning.report.target == "local, cpp"
    assert tuning.report.fingerprint["runner"] == "cpp"
    assert all(trial.error < 1e-5 for trial in tuning.report.trials if trial.rounds)
    assert any(trial.rounds for trial in tuning.report.trials)


@pytest.mark.suite
def test_the_runtime_that_a_plugin_names_measures_its_delegates(
    target, on_cuda, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    put(tmp_path, "a-runtime", "", {"etdev.runners": {"loader": "support.toys.loader:RUNNER"}})
    request = Request(on_cuda, (SUMMANDS,), outputs=True, **QUICK)
    assert isinstance(target().run(request), Failure)
    result = target([from_object(PLUGIN)]).run(request)
    assert isinstance(result, Result), result
    assert same(result.outputs[0][0], SUMMANDS[0] + SUMMANDS[1])
    assert len(result.times_ns[0]) == 4


def test_a_runner_that_can_not_be_used_stops_a_tuning_before_it_lowers(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-compiler")
    monkeypatch.setattr(RUNNER, "_child", None)
    monkeypatch.setattr(Builder, "build", None)
    given = (MODULE, INPUTS, tmp_path / "net.pte")
    with pytest.raises(RunError, match="no C\\+\\+ compiler is installed"):
        etdev.tune(*given, plugins=["cpu"], runner="cpp", store=False)
    with pytest.raises(PluginError, match="gone: not installed"):
        etdev.tune(*given, plugins=["cpu"], runner="gone", store=False)
