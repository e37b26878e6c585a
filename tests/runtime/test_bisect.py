"""Bisection: the delegate that departs from eager PyTorch is found and named, and no other."""

import pytest
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir import EdgeProgramManager
from models import nets
from torch import nn

from etdev import Lowerer
from etdev.errors import RunError
from etdev.runtime.bisect import bisection


@pytest.fixture
def spoil(monkeypatch):
    """Make XNNPACK compile wrong weights wherever a delegate has a certain constant."""
    compiler = XnnpackBackend.preprocess

    def of(name):
        def preprocess(program, specs):
            if name in program.state_dict:
                spoilt = program.state_dict[name] * 1.5
                program.state_dict[name] = nn.Parameter(spoilt)
            return compiler(program, specs)

        monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(preprocess))

    return of


def saved(folder, plugins=("cpu",), model=nets.mlp):
    module, inputs = model()
    lowerer = Lowerer(list(plugins))
    path = lowerer.lower(module, inputs).save(folder / "net.pte")
    return lowerer.decide(module, inputs), path, module, inputs


def suspects(found):
    return [(s.partition.name, s.departs(1e-4)) for s in found.suspects()]


@pytest.mark.parametrize("model", [nets.mlp, nets.conv_net, nets.quantised_conv_net])
def test_no_delegate_of_a_right_program_departs(model, tmp_path):
    decision, path, _, inputs = saved(tmp_path, model=model)
    found = suspects(bisection(path, decision, "forward", inputs))
    assert len(found) == len(decision.plan["forward"].partitions)
    assert not any(departs for _, departs in found)


@pytest.mark.parametrize(("weight", "guilty"), [("0.weight", "cpu_0"), ("3.weight", "cpu_1")])
def test_the_delegate_with_wrong_weights_is_found(weight, guilty, spoil, tmp_path):
    spoil(weight)
    decision, path, module, inputs = saved(tmp_path)
    found = bisection(path, decision, "forward", inputs)
    # The later one is fed with eager's values, so that it isn't blamed for the earlier one.
    assert suspects(found) == [("cpu_0", guilty == "cpu_0"), ("cpu_1", guilty == "cpu_1")]
    (suspect,) = [s for s in found.suspects() if s.departs(1e-4)]
    assert weight.split(".")[0] in suspect.modules
    expected = [module(*inputs)]
    (swapped,) = found.swapped(suspect, expected)
    assert swapped.max_error < 1e-5


def test_a_quantised_delegate_is_swapped_too(tmp_path):
    decision, path, module, inputs = saved(tmp_path, model=nets.quantised_conv_net)
    found = bisection(path, decision, "forward", inputs)
    first, *_ = found.suspects()
    (swapped,) = found.swapped(first, [module(*inputs)])
    assert swapped.max_error < 1e-5


def test_what_no_portable_kernel_runs_is_not_swapped(monkeypatch, tmp_path):
    decision, path, module, inputs = saved(tmp_path)
    found = bisection(path, decision, "forward", inputs)
    first, *_ = found.suspects()

    def fails(manager):
        raise RuntimeError("Missing out variants")

    monkeypatch.setattr(EdgeProgramManager, "to_executorch", fails)
    assert found.swapped(first, [module(*inputs)]) is None


def test_a_program_of_other_plugins_is_not_bisected(tmp_path):
    _, path, module, inputs = saved(tmp_path)
    other = Lowerer([]).decide(module, inputs)
    with pytest.raises(RunError) as caught:
        bisection(path, other, "forward", inputs)
    assert str(caught.value) == (
        f"{path}: is not what this model and these plugins give: method forward, delegate 0: "
        "planned none, found XnnpackBackend on cpu; give the --plugin, --device, --pin it was "
        "lowered with"
    )
