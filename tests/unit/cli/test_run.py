"""etdev run: outputs, latency, the error against PyTorch, and the delegate it comes from."""

from __future__ import annotations

import pytest
import torch
from support.models import nets
from support.shell import MLP, fails, invoke, succeeds

from etdev import Lowerer
from etdev.edge.reference import called

COUNTER = """\
import torch


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def model():
    return Counter(), (torch.ones(3),)
"""


NOISE = """\
import torch


class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand(3)


def model():
    return Noise(), (torch.ones(3),)
"""


@pytest.fixture(scope="module")
def wrong_pte(tmp_path_factory):
    """The MLP with a second delegate whose weights are not the model's."""
    module, inputs = nets.mlp()
    with torch.no_grad():
        module[3].weight *= 1.5
    return Lowerer(["cpu"]).lower(module, inputs).save(tmp_path_factory.mktemp("wrong") / "net.pte")


def test_run_with_check_shows_the_error_against_eager(mlp_pte):
    told = succeeds("run", mlp_pte, "--check", MLP, "--runner", "python")
    output, latency, verified = told.splitlines()
    at = ", also at inf, nan"
    assert verified == f"verified over 1 call within 0.0001 of the largest value{at}"
    assert output.startswith("output 0: float32 (2, 4), max error ")
    assert float(output.split("max error ")[1].split()[0]) < 1e-5
    assert latency.startswith("latency: ")
    assert " ms median of 10, fastest " in latency


def test_run_above_the_tolerance_fails_and_still_shows_the_outputs(mlp_pte):
    done = invoke("run", mlp_pte, "--check", MLP, "--tolerance", "1e-30")
    assert done.exit_code == 1
    assert done.stdout.startswith("output 0: float32 (2, 4), max error ")
    error, command = done.stderr.splitlines()[-2:]
    assert error.startswith("error: method 'forward': step 0: output 0 is off by ")
    assert command == f"next: etdev reduce {MLP} --tolerance 1e-30 -o fault"


def test_nan_is_above_every_tolerance_whatever_the_other_outputs(two_pte, broken):
    done = invoke("run", two_pte, "--check", f"{broken}:second_is_nan", "--tolerance", "1e9")
    assert done.exit_code == 1
    assert "output 1 is 2 at [0], in eager PyTorch NaN (3 such values)" in done.stderr


def test_run_without_inputs_makes_some_up(mlp_pte):
    output, latency = succeeds("run --repeat 3", mlp_pte).splitlines()
    assert output == "output 0: float32 (2, 4)"
    assert " ms median of 3, fastest " in latency


def test_run_takes_inputs_from_a_file(two_pte, broken):
    torch.save([torch.full((3,), 5.0)], "inputs.pt")
    text = succeeds("run", two_pte, "--inputs", "inputs.pt", "--check", f"{broken}:two")
    assert "max error 0 (largest value 6)" in text
    assert "max error 0 (largest value 10)" in text


def test_an_unknown_method_is_refused(mlp_pte):
    assert fails("run --method back", mlp_pte) == f"{mlp_pte}: has no method 'back'; it has forward"
    assert fails("run --method back", mlp_pte, "--check", MLP) == (
        f"{MLP}: has no method 'back'; it has forward"
    )


def test_a_check_against_another_model_is_refused(two_pte):
    assert fails("run", two_pte, "--check", MLP) == (
        "method 'forward': input 0 is float32 2x8; it takes float32 3"
    )


def test_bisect_names_delegate_plugin_and_error(wrong_pte):
    done = invoke("run", wrong_pte, "--check", MLP, "--bisect", "--plugin", "cpu")
    assert done.exit_code == 1
    assert done.stdout.startswith("output 0: float32 (2, 4), max error ")
    error, command = done.stderr.splitlines()[-2:]
    assert command == f"next: etdev reduce {MLP} --plugin cpu -o fault"
    assert error.startswith("error: method 'forward': step 0: output 0 is off by ")
    assert "; delegate cpu_1 (cpu, XnnpackBackend): output 0 is off by " in error


def test_each_call_is_made_once_in_pytorch(mlp_pte, monkeypatch):
    made = []

    def call(*arguments):
        made.append(arguments)
        return called(*arguments)

    for place in ("etdev.verify.oracle.called", "etdev.edge.reference.called"):
        monkeypatch.setattr(place, call)
    succeeds("run", mlp_pte, "--check", MLP, "--repeat", "1")
    # With infinities and NaN.
    assert len(made) == 1 + 2


def test_state_is_compared_from_its_start(here):
    """The call that is timed writes the state, and so does the one in PyTorch."""
    (here / "counter.py").write_text(COUNTER)
    succeeds("lower counter.py:model -o counter.pte --plugin cpu")
    text = succeeds("run counter.pte --check counter.py:model --steps 3")
    assert text.splitlines()[2].startswith("verified over 3 calls ")
    # The calls that are timed change the state, so the first one is compared.
    assert text.splitlines()[0] == "output 0: float32 (3,), max error 0 (largest value 2)"


def test_a_check_of_a_method_compares_the_state_that_it_shares(here):
    (here / "both.py").write_text(
        f"{COUNTER}\n\ndef both():\n    made = model()\n    return {{'a': made, 'b': made}}\n"
    )
    assert "state total (" in succeeds("lower both.py:both -o both.pte --plugin cpu")
    text = succeeds("run both.pte --method a --check both.py:both")
    assert text.splitlines()[-1].startswith("verified over 2 calls ")
    text = succeeds("lower both.py:both -o both.pte --plugin cpu --no-share-state")
    assert "state total (12 bytes) is not shared, each has its own" in text


def test_a_check_that_compares_nothing_fails(here):
    (here / "noise.py").write_text(NOISE)
    succeeds("lower noise.py:model -o noise.pte --plugin cpu")
    done = invoke("run noise.pte --check noise.py:model")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "error: not verified: method 'forward': it draws random numbers; "
        "leave out --check to run it alone"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tolerance 1", "--tolerance needs --check SOURCE"),
        ("--bisect", "--bisect needs --check SOURCE"),
        ("--steps 2", "--steps needs --check SOURCE"),
        (
            "--check net.py:model --plugin cpu",
            "--plugin, --device, --pin, --strict and --registry need --bisect",
        ),
    ],
)
def test_options_that_need_each_other_say_so(words, message):
    done = invoke(f"run net.pte {words}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_run_needs_no_registry(mlp_pte, here):
    """It asks no plugin, unless it is to bisect."""
    (here / "registry.toml").write_text("[plugins.gone]\n")
    succeeds("run --repeat 1", mlp_pte)
    error = fails("run", mlp_pte, "--check", MLP, "--bisect")
    assert error.startswith("gone: not installed, but listed in registry.toml; ")
