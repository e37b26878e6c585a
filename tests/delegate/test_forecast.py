"""The forecast: what a lowering would find in the cache is what it then finds."""

import json

import pytest
import torch
from models import nets
from shell import MLP, cells, invoke, succeeds
from torch import nn
from toys import Takes

from etdev import Bypass, Lowerer, Plan, Probe, hookimpl
from etdev.delegate.compiler_calls import Call
from etdev.errors import PluginError

X = torch.randn(3, 8)


def forecast(lowerer, model, inputs):
    decision = lowerer.decide(model, inputs)
    return [
        (told.partition, told.state, told.why) for told in lowerer.compilation.forecast(decision)
    ]


@pytest.fixture
def never(monkeypatch):
    """Nothing may be compiled."""
    monkeypatch.setattr(Call, "compile", lambda call, *_: pytest.fail(f"compiled {call}"))


def test_it_is_what_a_lowering_then_finds(tmp_path, monkeypatch):
    model, inputs = nets.mlp()
    lowerer = Lowerer(["cpu"], cache=tmp_path)
    decision = lowerer.decide(model, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(Call, "compile", lambda call, *_: pytest.fail(f"compiled {call}"))
        cold = lowerer.compilation.forecast(decision)
    assert [told.state for told in cold] == ["miss", "miss"]
    lowered = lowerer.lower(model, inputs)
    assert [told.key for told in cold] == [outcome.key for outcome in lowered.outcomes]
    with torch.no_grad():
        next(iter(model.parameters())).add_(1)
    assert forecast(lowerer, model, inputs) == [("cpu_0", "miss", ""), ("cpu_1", "hit", "")]


def test_equal_partitions_are_compiled_once(tmp_path, never):
    layer = nn.Linear(8, 8)
    methods = {"one": (layer, (X,)), "two": (layer, (X,))}
    told = forecast(Lowerer(["cpu"], cache=tmp_path), methods, None)
    assert told == [("cpu_0", "miss", ""), ("cpu_0", "hit", "the same as one/cpu_0")]


class Tuned(Takes):
    @hookimpl
    def cache_key(self):
        return Bypass("kernels are tuned anew")


class Unfit(Takes):
    @hookimpl
    def probe(self):
        return Probe(unfit="there is no such device")


@pytest.mark.parametrize(
    ("plugin", "cache", "state", "why"),
    [
        (Tuned("toy", ("relu.default",)), True, "bypassed", "kernels are tuned anew"),
        (Takes("toy", ("relu.default",)), False, "bypassed", "there is no cache"),
        (Unfit("toy", ("relu.default",)), True, "unfit", "there is no such device"),
    ],
)
def test_it_says_why_nothing_is_known(plugin, cache, state, why, tmp_path, never):
    lowerer = Lowerer([plugin], cache=tmp_path if cache else False)
    assert forecast(lowerer, nn.ReLU(), (X,)) == [("toy_0", state, why)]
    if state == "unfit":
        with pytest.raises(PluginError, match=why):
            lowerer.lower(nn.ReLU(), (X,))


def test_etdev_plan_shows_it(tmp_path, never):
    rows = cells(succeeds(f"plan {MLP} --plugin cpu --forecast --cache", tmp_path))
    assert rows[-4:] == [
        "cache: miss 2",
        "partition would be why",
        "forward/cpu_0 miss",
        "forward/cpu_1 miss",
    ]
    text = succeeds(f"plan {MLP} --plugin cpu --forecast --no-cache --json")
    assert [(told["partition"], told["state"]) for told in json.loads(text)["forecast"]] == [
        ("cpu_0", "bypassed"),
        ("cpu_1", "bypassed"),
    ]
    # Other commands read the plan all the same.
    assert Plan.from_json(text) == Plan.from_json(succeeds(f"plan {MLP} --plugin cpu --json"))
    assert invoke(f"plan {MLP} --forecast --why x").exit_code == 2
