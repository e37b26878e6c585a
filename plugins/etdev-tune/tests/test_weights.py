"""Weights of methods decide between candidates that are fast in different methods."""

from __future__ import annotations

import json

import pytest
import torch
from etdev_tune.exchange import Policy, Result
from etdev_tune.search import Search
from support.shell import MLP, fails, invoke, succeeds
from support.toys.target import Scripted

import etdev
from etdev import TuneError
from etdev.pte.read import read
from etdev.runtime.run import execute


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


TIMES = {("prefill", True): 1, ("prefill", False): 9, ("decode", True): 3, ("decode", False): 2}


class ByMethod(Scripted):
    """XNNPACK takes 1 ms for a prompt and 3 for a token, portable kernels 9 and 2."""

    def run(self, request):
        delegated = any(method.delegates for method in read(request.program).methods)
        time = int(TIMES[request.method, delegated] * 1e6)
        program = request.program.read_bytes()
        outputs = [tuple(execute(program, i, method=request.method)) for i in request.inputs]
        return Result(
            times_ns=tuple((time,) * request.repetitions for _ in request.inputs),
            outputs=tuple(outputs) if request.outputs else (),
        )


@pytest.mark.slice("weights1")
@pytest.mark.parametrize(
    ("weights", "chosen", "milliseconds"),
    [
        (None, "untuned", 2.0),
        ({"prefill": 1, "decode": 16}, "portable alone", (9 + 16 * 2) / 17),
        ({"prefill": 2}, "untuned", 1.0),
    ],
)
def test_a_method_counts_by_its_calls(tmp_path, monkeypatch, weights, chosen, milliseconds):
    monkeypatch.setattr(Search, "has_time", lambda _: False)
    module = Layer().eval()
    methods = {"prefill": (module, (torch.ones(3, 4),)), "decode": (module, (torch.ones(1, 4),))}
    report = etdev.tune(
        methods, path=tmp_path / "net.pte", on=ByMethod(lambda _: 0), plugins=["cpu"],
        weights=weights, policy=Policy(warmup=0, repetitions=3), store=False,
    ).report  # fmt: skip
    assert report.chosen == chosen
    (trial,) = [trial for trial in report.trials if trial.name == chosen]
    assert trial.latency_ms.value == pytest.approx(milliseconds)
    if weights:
        assert report.weights == pytest.approx({"prefill": 0, "decode": 0, **weights})


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ({"nope": 1}, "there is no method 'nope'; the methods are forward"),
        ({"forward": 0}, "give numbers of calls, one above 0"),
        ({"forward": float("nan")}, "give numbers of calls"),
    ],
)
def test_weights_that_make_no_sense_are_refused(tmp_path, weights, what):
    target = Scripted(lambda _: 1)
    inputs = (torch.ones(1, 4),)
    with pytest.raises(TuneError, match=what):
        etdev.tune(Layer(), inputs, tmp_path / "net.pte", on=target, weights=weights, store=False)


def test_the_command_takes_weights(here, monkeypatch):
    monkeypatch.setattr("etdev_tune.tune.open_runner", lambda *_: Scripted(lambda _: 1))
    monkeypatch.setattr(Search, "has_time", lambda _: False)
    words = f"tune {MLP} -o net.pte --plugin cpu --no-store"
    document = json.loads(succeeds(f"{words} --weight forward 3 --json"))
    assert document["weights"] == {"forward": 3.0 / document["timed"]}
    assert fails(f"{words} --weight decode 3").startswith("weight: there is no method 'decode'")
    done = invoke(f"{words} --weight forward often")
    assert (done.exit_code, "'often' is not a valid float" in done.stderr) == (2, True)
