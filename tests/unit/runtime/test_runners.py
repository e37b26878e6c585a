"""Runners: found by name, by the backends of a file, and used wherever a program is run."""

from __future__ import annotations

import pytest
import torch
from support.models.small import Function
from support.shell.distributions import put
from support.toys import loader
from support.toys.accelerator import Accelerator

from etdev import Device, Lowerer, hookimpl
from etdev.errors import EtdevWarning, PluginError, RunError, VerifyError
from etdev.pte.read import read
from etdev.registry.selection import from_object
from etdev.runtime.check import check
from etdev.runtime.child import Child
from etdev.runtime.run import run
from etdev.runtime.runners import PYTHON, named, runner_of, verifying

X = torch.tensor([[1.0, float("nan")], [float("inf"), -2.0]])


class OwnRuntime(Accelerator):
    """A plugin whose delegates run in a runtime of its vendor."""

    @hookimpl
    def runner_for(self, backend_id):
        return "loader" if backend_id == "FakeAccelerator" else None


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution that adds runners."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", raising=False)

    def installed(name="a-runtime", source="", **runners):
        put(tmp_path, name, source, {"etdev.runners": runners})

    return installed


@pytest.fixture(scope="module", autouse=True)
def _one_process():
    """The process of the fake runtime, which several tests share, ends with them."""
    yield
    loader.CHILD.close()


@pytest.fixture
def plugin():
    return OwnRuntime(ops=("add.Tensor",), device=Device("cuda", 0))


@pytest.fixture
def lowered(plugin):
    return Lowerer([plugin]).lower(Function(torch.add), (torch.ones(2, 2), torch.ones(2, 2)))


def test_python_is_built_in():
    assert named("python") is PYTHON


def test_a_plugin_names_the_runtime_that_loads_its_delegates(install, plugin, on_cuda, mlp_pte):
    install(loader="support.toys.loader:RUNNER")
    plugins = [from_object(plugin)]
    chosen = runner_of(read(on_cuda), plugins)
    assert chosen is loader.RUNNER
    assert runner_of(read(mlp_pte), plugins) is PYTHON
    assert runner_of(read(on_cuda), plugins, "python") is PYTHON
    (output,) = run(on_cuda, [X, X * 3], runner=chosen).outputs
    torch.testing.assert_close(output, X * 4, equal_nan=True)


def test_verification_and_checks_use_it(install, lowered, plugin, on_cuda):
    assert "the runtime has no backend FakeAccelerator" in check(on_cuda)[0]
    install(loader="support.toys.loader:RUNNER")
    done = lowered.verify(steps=4)
    assert done.calls >= 4
    assert (done.unverified, done.runners) == ((), ("loader",))
    assert check(on_cuda, plugins=[from_object(plugin)]) == []
    # Without the runtime, a verification says so.
    (text,) = lowered.verify(runner="python").unverified
    assert text == "method 'forward': the runtime has no backend FakeAccelerator"


def test_a_wrong_value_names_the_runner(install, lowered):
    install(loader="support.toys.loader:WRONG")
    with pytest.raises(VerifyError) as caught:
        lowered.verify()
    assert caught.value.what.startswith(
        "step 0: in runner wrong, output 0 is off by 0.5 at [0, 0] (largest value 2, tolerance "
        "2.0e-04); "
    )


def test_a_crash_in_the_runtime_is_an_error(install, on_cuda):
    install(
        source="import os\ndef load(*_, **__): os.abort()\n", loader="support.toys.loader:RUNNER"
    )
    import a_runtime

    # A process that begins after the distribution is there.
    abort = loader.PythonRunner("abort", a_runtime.load, Child(command=loader.CHILD.command))
    with pytest.raises(RunError) as caught:
        run(on_cuda, [X, X], runner=abort)
    assert caught.value.what == "the process died of SIGABRT"


def test_two_runtimes_for_one_file_are_refused_unless_one_is_named(install, tmp_path, plugin):
    class Both(Accelerator):
        @hookimpl
        def runner_for(self, backend_id):
            return {"FakeAccelerator": "loader", "XnnpackBackend": "other"}[backend_id]

    sigmoid = Function(lambda x, y: torch.sigmoid(x + y))
    lowered = Lowerer([plugin, "cpu"]).lower(sigmoid, (torch.ones(2), torch.ones(2)))
    artifact = read(lowered.save(tmp_path / "both.pte"))
    install(loader="support.toys.loader:RUNNER")
    with pytest.raises(RunError) as caught:
        runner_of(artifact, [from_object(Both())])
    assert caught.value.what == (
        "no runner has all backends: FakeAccelerator needs loader, XnnpackBackend needs other"
    )
    assert runner_of(artifact, [from_object(Both())], "loader") is loader.RUNNER


@pytest.mark.parametrize(
    ("runners", "name", "message"),
    [
        ({}, "gone", "gone: not installed; installed are python"),
        (
            {"other": "support.toys.loader:RUNNER"},
            "no",
            "no: not installed; installed are other, python",
        ),
        (
            {"bad": "support.toys.loader:load"},
            "bad",
            "bad (a-runtime 1.0): support.toys.loader:load is a function, not a runner; "
            "uninstall it",
        ),
    ],
)
def test_a_runner_that_is_no_use_is_named(install, monkeypatch, runners, name, message):
    monkeypatch.setattr("etdev.registry.extensions.candidates", only(runners))
    install(**runners)
    with pytest.raises(PluginError) as caught:
        named(name)
    assert str(caught.value) == message


def only(names):
    """Entry points of the given names alone, whatever else is installed here."""
    from etdev.registry.extensions import candidates

    return lambda group: {key: known for key, known in candidates(group).items() if key in names}


@pytest.mark.suite
def test_runners_that_load_what_python_loads_verify_as_well(install, mlp_lowered, mlp_pte):
    install(
        beside="support.toys.loader:BESIDE",
        loader="support.toys.loader:RUNNER",
        bad="support.toys.loader:load",
    )
    with pytest.warns(EtdevWarning, match=r"runner 'bad' was left out: bad \(a-runtime 1.0\)"):
        names = [runner.name for runner in verifying(read(mlp_pte), [])]
    assert [name for name in names if name != "cpp"] == ["python", "beside"]
    assert [runner.name for runner in verifying(read(mlp_pte), [], "python")] == ["python"]
    done = mlp_lowered.verify(path=mlp_pte, runner="beside")
    assert done.runners == ("beside",)
