"""The C++ runner gives the bytes that Python gives, and its errors are errors with a reason."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from attrs import evolve
from etdev_cpp import frames
from etdev_cpp.frames import Reader, order_of
from etdev_cpp.runner import RUNNER, CppRunner
from support.models import nets
from support.models.small import Function
from support.quirks import model
from support.toys.accelerator import Accelerator
from support.toys.bits import same

from etdev import Lowerer
from etdev.errors import RunError, VerifyError
from etdev.pte.read import read
from etdev.runtime.check import check
from etdev.runtime.profiling import profile
from etdev.runtime.run import run, run_series
from etdev.runtime.runners import named
from etdev.runtime.worker import Program

pytestmark = pytest.mark.usefixtures("compiles")


class Kinds(torch.nn.Module):
    """Outputs of several kinds and dtypes, and a state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, number: int, image):
        self.count.add_(1)
        return (
            x.sum().item() * number,
            number * 2,
            x.to(torch.float16),
            x > 0,
            self.count * 3,
            image.relu(),
            x[:0],
        )


IMAGE = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
X = torch.tensor([[1.0, float("nan"), -0.0], [float("inf"), -2.0, 3.0]])


def run_method(path, facts, calls, **options):
    """Call one method in turn in one loaded program."""
    return run_series(path, [(facts, inputs) for inputs in calls], **options)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    lowered = Lowerer(["cpu"]).lower(Kinds(), (X, 3, IMAGE))
    return lowered.save(tmp_path_factory.mktemp("kinds") / "kinds.pte")


def test_methods_share_state_as_in_python(tmp_path):
    def added(net, x):
        return net.total.add_(x) * 2

    total = torch.tensor([1.0, -2.0])
    nets_by_name = {
        "add": model(added, total=total),
        "show": model(lambda n, x: n.total * x, total=total),
    }
    x = torch.tensor([3.0, 0.5])
    path = (
        Lowerer(["cpu"])
        .lower({k: (net, (x,)) for k, net in nets_by_name.items()})
        .save(tmp_path / "net.pte")
    )
    facts = {method.name: method for method in read(path).methods}
    names = ("show", "add", "show", "add", "show")
    calls = [(facts[name], [x]) for name in names]
    expected = [nets_by_name[name](x) for name in names]
    for runner in (named("python"), RUNNER):
        found = run_series(path, calls, runner=runner, share_arenas=True).values
        assert all(map(same, [value.outputs[0] for value in found], expected))
        assert len(found) == len(names)


def test_values_and_states_of_calls_are_those_of_python(kinds):
    (facts,) = read(kinds).methods
    calls = [[X * step, 3, IMAGE * step] for step in range(4)]
    ours, theirs = (run_method(kinds, facts, calls, runner=r) for r in (RUNNER, named("python")))
    assert ours.failure is theirs.failure is None
    for a, b in zip(ours.values, theirs.values, strict=True):
        assert len(a.outputs) == 7
        assert all(map(same, a.outputs, b.outputs))
        assert all(map(same, a.inputs, b.inputs))
    assert [int(call.outputs[4]) for call in ours.values] == [3, 6, 9, 12]


@pytest.mark.parametrize("dtype", [*(torch.uint8, torch.int8, torch.int16, torch.bfloat16)])
def test_other_dtypes_arrive(dtype, tmp_path):
    value = torch.tensor([[0, 1, 100]], dtype=dtype)
    path = Lowerer([]).lower(Function(lambda x: x.reshape(3)), (value,)).save(tmp_path / "x.pte")
    (output,) = run(path, [value], runner=RUNNER).outputs
    assert same(output, value.reshape(3))


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(2, 3, 4),
        torch.randn(1, 1, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(2, 1, 4, 1).to(memory_format=torch.channels_last),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.tensor([1, 65535], dtype=torch.uint16),
    ],
    ids=lambda value: f"{value.dtype}-{tuple(value.shape)}",
)
def test_a_tensor_survives_a_frame(value):
    frame = frames.framed(frames.several([value, None, True, -7, 2.5], frames.value))
    reader = Reader(frame[8:])
    read_back, *rest = reader.several(reader.value)
    assert same(read_back, value)
    assert order_of(read_back) == order_of(value)
    assert rest == [None, True, -7, 2.5]


def test_calls_are_timed_and_traced(kinds):
    done = run(kinds, [X, 3, IMAGE], repeat=4, runner=RUNNER)
    assert len(done.latency_ms) == 4
    assert min(done.latency_ms) > 0
    measured = profile(kinds, [X, 3, IMAGE], repeat=3, runner=RUNNER)
    in_python = profile(kinds, [X, 3, IMAGE], repeat=3)
    assert measured.runs == 3
    ours, theirs = ([one.name for one in p.instructions] for p in (measured, in_python))
    assert ours == theirs
    assert sum(cost.ms for cost in measured.costs) > 0


def test_a_program_whose_outputs_have_no_planned_memory_runs(tmp_path):
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    config = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    )
    lowered = Lowerer(["cpu"]).lower(Function(lambda x: (x * 2, x.exp())), (torch.ones(3),))
    path = lowered.save(tmp_path / "own.pte", config)
    (facts,) = read(path).methods
    calls = [[torch.ones(3) * step] for step in (1, 2)]
    ours, theirs = (run_method(path, facts, calls, runner=r) for r in (RUNNER, named("python")))
    assert len(ours.values) == 2
    for a, b in zip(ours.values, theirs.values, strict=True):
        assert all(map(same, a.outputs, b.outputs))


def test_weights_in_a_ptd_are_found(tmp_path):
    from executorch.exir import ExecutorchBackendConfig

    module, inputs = nets.mlp()
    config = ExecutorchBackendConfig(external_constants=True)
    path = Lowerer([]).lower(module, inputs).save(tmp_path / "out.pte", config)
    assert list(tmp_path.glob("*.ptd"))
    ours, theirs = (run(path, inputs, runner=r).outputs for r in (RUNNER, named("python")))
    assert all(map(same, ours, theirs))


def test_verification_uses_both_unless_one_is_named(mlp_lowered, mlp_pte):
    assert mlp_lowered.verify(path=mlp_pte).runners == ("python", "cpp")
    assert mlp_lowered.verify(path=mlp_pte, runner="cpp").runners == ("cpp",)


def test_a_wrong_value_is_found_in_cpp_alone(mlp_lowered, mlp_pte, monkeypatch):
    call = CppRunner.call

    def wrong(self, *arguments):
        done = call(self, *arguments)
        done.values[0].outputs[0].add_(1)
        return done

    monkeypatch.setattr(CppRunner, "call", wrong)
    with pytest.raises(VerifyError) as caught:
        mlp_lowered.verify(path=mlp_pte)
    assert caught.value.what.startswith("step 0: in runner cpp, output 0 is off by 1 ")


def test_it_names_what_the_runtime_lacks(tmp_path, mlp_pte):
    lowered = Lowerer([Accelerator(ops=("relu",))]).lower(torch.nn.ReLU(), (torch.ones(3),))
    (method,) = read(lowered.save(tmp_path / "fake.pte")).methods
    assert RUNNER.missing(method) == (["FakeAccelerator"], [])
    made_up = evolve(method, operators=("aten::add.out", "my::own.out"))
    assert RUNNER.missing(made_up) == (["FakeAccelerator"], ["my::own.out"])
    assert RUNNER.missing(read(mlp_pte).methods[0]) == ([], [])


def test_what_the_runtime_refuses_is_an_error_with_its_reason(mlp_pte, tmp_path):
    with pytest.raises(RunError) as caught:
        run(mlp_pte, [torch.ones(2, 8, dtype=torch.int64)], runner=RUNNER)
    assert "input 0 is int64 2x8" in caught.value.what
    program = Program(mlp_pte, None, (), ())
    wrong = RUNNER.call(program, [("forward", [torch.ones(2, 9)])], 0, 60).failure
    assert wrong.startswith("the C++ runtime failed with Error::")
    assert "when it executed forward (" in wrong
    text = RUNNER.call(program, [("forward", ["text"])], 0, 60).failure
    assert text == "the C++ runtime failed with a str can't be an input"
    broken = tmp_path / "broken.pte"
    broken.write_bytes(mlp_pte.read_bytes()[:200])
    refused = RUNNER.load(Program(broken, None, (), ()), "forward").failure
    assert refused.startswith("the C++ runtime failed with Error::")
    assert "when it loaded the program" in refused
    gone = RUNNER.load(Program(mlp_pte, None, (), ()), "backward").failure
    assert gone.startswith("the C++ runtime failed with Error::InvalidArgument when it loaded")


def test_a_process_that_dies_or_hangs_is_an_error_and_is_started_again(mlp_pte):
    (facts,) = read(mlp_pte).methods
    calls = [[torch.ones(2, 8)]]
    RUNNER.prepare()
    late = run_method(mlp_pte, facts, calls * 20_000, limit_s=0.001, runner=RUNNER)
    assert late.failure == "the process took longer than 0.001 s"
    RUNNER.prepare()
    os.kill(RUNNER._child._process.pid, signal.SIGSTOP)
    stopped = run_method(mlp_pte, facts, calls, limit_s=0.5, runner=RUNNER)
    assert stopped.failure == "the process took longer than 0.5 s"
    RUNNER.prepare()
    os.kill(RUNNER._child._process.pid, signal.SIGKILL)
    assert run_method(mlp_pte, facts, calls, runner=RUNNER).failure in (
        None,  # It was seen to be gone, and started again.
        "the process died of SIGKILL",
    )
    assert run_method(mlp_pte, facts, calls, runner=RUNNER).failure is None


def test_without_a_compiler_python_verifies_and_cpp_is_an_error(
    mlp_lowered, mlp_pte, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(RUNNER, "_child", None)
    assert mlp_lowered.verify(path=mlp_pte).runners == ("python",)
    with pytest.raises(RunError) as caught:
        mlp_lowered.verify(path=mlp_pte, runner="cpp")
    assert str(caught.value) == (
        "cpp: no C++ compiler is installed; install g++ or clang++, or name a compiler with CXX; "
        "--runner python needs none"
    )
    assert check(mlp_pte) == []


def test_a_file_in_memory_runs(mlp_pte):
    (facts,) = read(mlp_pte).methods
    data = Path(mlp_pte).read_bytes()
    outcome = run_method(data, facts, [[torch.ones(2, 8)]], runner=RUNNER)
    (ours,) = outcome.values
    assert same(ours.outputs[0], run(mlp_pte, [torch.ones(2, 8)]).outputs[0])
