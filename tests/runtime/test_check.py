"""etdev check: what would not load or not run, found from the file."""

import pytest
import torch
from click.testing import CliRunner
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.compile_spec_schema import CompileSpec
from models import nets
from torch import nn
from toys.accelerator import Accelerator

from etdev import CPU, Device, Lowerer
from etdev.cli.main import main
from etdev.runtime.check import check

CUDA0 = Device("cuda", 0)
X = (torch.randn(2, 2), torch.randn(2, 2))


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    lowered = Lowerer(["cpu"]).lower(*nets.mlp())
    return lowered, lowered.save(tmp_path_factory.mktemp("check") / "mlp.pte")


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory):
    plugin = Accelerator(ops=("add.Tensor",), device=CUDA0)
    lowered = Lowerer([plugin]).lower(Add(), X)
    return lowered.save(tmp_path_factory.mktemp("check") / "cuda.pte")


def test_a_program_that_runs_has_no_problems(mlp):
    lowered, path = mlp
    assert check(path, plan=lowered.plan, plugins=Lowerer(["cpu"]).plugins) == []


def test_a_missing_backend_is_named(on_cuda):
    problems = check(on_cuda, [CPU, CUDA0])
    assert "method forward: the runtime has no backend FakeAccelerator" in problems
    assert not any("planned on" in problem for problem in problems)


def test_devices_that_the_target_lacks_are_named(on_cuda):
    problems = check(on_cuda, [CPU])
    assert "method forward: memory is planned on cuda:0, the target has cpu" in problems
    assert "method forward: delegate 0 (FakeAccelerator) is on cuda:0, not on cpu" in problems


def test_a_label_that_the_payload_contradicts_is_named(tmp_path):
    inner = to_edge(torch.export.export(Add(), X)).exported_program()
    delegate = to_backend("XnnpackBackend", inner, [CompileSpec("target_device", b"cuda:0")])

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.delegate = delegate

        def forward(self, x, y):
            return torch.cumsum(self.delegate(x, y), 0)

    path = Lowerer([]).lower(Outer(), X).save(tmp_path / "lie.pte")
    assert check(path, [CPU, CUDA0], plugins=Lowerer(["cpu"]).plugins)[-1] == (
        "method forward: delegate 0 (XnnpackBackend) is labelled cuda:0, but its payload uses cpu"
    )


def test_a_missing_ptd_is_named(tmp_path):
    config = ExecutorchBackendConfig(external_constants=True)
    path = Lowerer([]).lower(*nets.mlp()).save(tmp_path / "mlp.pte", config)
    (data,) = tmp_path.glob("*.ptd")
    assert data.name == "mlp._default_external_constant.ptd"
    assert check(path) == []
    assert check(path, data=data) == []
    data.unlink()
    assert check(path) == [f"its constants are in a .ptd file, and there is none in {tmp_path}"]
    assert check(path, data=data) == [f"its constants are in {data}, which is not there"]


def test_differences_from_a_plan_are_listed_with_both_sides(mlp):
    other = Lowerer([]).plan(*nets.mlp())
    assert check(mlp[1], plan=other) == [
        "method forward, delegate 0: planned none, found XnnpackBackend on cpu",
        "method forward, delegate 1: planned none, found XnnpackBackend on cpu",
    ]


def test_a_program_etdev_did_not_make_is_checked_too(tmp_path):
    path = tmp_path / "plain.pte"
    path.write_bytes(to_edge(torch.export.export(Add(), X)).to_executorch().buffer)
    assert check(path) == []


def run(*arguments):
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def test_the_command_says_that_all_is_well(mlp, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(mlp[0].plan.to_json())
    done = run(mlp[1], "--plan", plan)
    assert (done.exit_code, done.stdout) == (0, f"{mlp[1]}: loads and runs on cpu\n")


def test_the_command_lists_problems_and_exits_with_1(on_cuda):
    done = run(on_cuda)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert f"{on_cuda}: method forward: the runtime has no backend FakeAccelerator" in lines


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--target", "gpu"], "error: device: unknown type 'gpu'"),
        (["--plan", "{here}/nowhere.json"], "nowhere.json: can't be read"),
        (["--plan", "{here}/broken.json"], "broken.json: is no plan"),
    ],
)
def test_bad_arguments_are_named(mlp, tmp_path, arguments, error):
    (tmp_path / "broken.json").write_text("{")
    done = run(mlp[1], *[argument.format(here=tmp_path) for argument in arguments])
    assert done.exit_code == 1
    assert error in done.stderr
    assert "Traceback" not in done.stderr
