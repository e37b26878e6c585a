"""A backend that fails on one partition, and what that costs the others."""

import pytest
import torch
from support.toys.moody import Moody
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer
from etdev.errors import BudgetError, CompileError, EtdevError, RegistryError
from etdev.registry.registry import load

ADD, MUL, SUB = "aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"
X = torch.randn(3, 4)


class Triple(nn.Module):
    def forward(self, x):
        return torch.cumsum(x * 3, 0)


class Net(nn.Module):
    """An addition, a product and a difference, each apart from the others."""

    def __init__(self):
        super().__init__()
        self.triple = Triple()

    def forward(self, x):
        return self.triple(torch.cumsum(x + x, 0)) - x


@pytest.fixture
def moody(tmp_path):
    def make(**moods):
        return Moody(str(tmp_path / "log"), **moods)

    return make


def test_an_error_names_the_partition_and_its_module_and_keeps_the_cause(moody):
    with pytest.raises(CompileError) as caught:
        Lowerer([moody(fails=MUL), "cpu"]).lower(Net(), (X,))
    assert str(caught.value) == (
        "moody: MoodyBackend failed on forward/moody_1 (1 node from aten_mul_tensor) of triple: "
        'ValueError: not in the mood; leave the plugin out, set on_failure = "fallback", or see '
        "the cause chained below"
    )
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.__cause__.__cause__, KeyError)


def test_a_partition_that_fails_goes_to_the_next_plugin_and_no_other_is_compiled_again(moody):
    plugin = moody(fails=MUL)
    lowered = Lowerer([plugin, "cpu"], on_failure="fallback").lower(Net(), (X,))
    assert plugin.ops() == [ADD, MUL, SUB]
    plan = lowered.plan["forward"]
    owners = {entry.op: entry.owner for entry in plan.ledger if entry.op in (ADD, MUL, SUB)}
    assert owners == {ADD: "moody", MUL: "cpu", SUB: "moody"}
    verdicts = plan.ledger["aten_mul_tensor"].verdicts
    assert [(v.plugin, v.code, v.text) for v in verdicts] == [
        ("moody", "compile-failed", "its compiler failed: ValueError: not in the mood"),
        ("cpu", "claimed", ""),
    ]
    assert {outcome.partition for outcome in lowered.outcomes} == {
        partition.name for partition in plan.partitions
    }
    assert_agrees(lowered, Net(), (X,), (torch.randn(3, 4),))


def test_what_no_plugin_can_compile_is_left_to_portable_kernels(moody):
    lowered = Lowerer([moody(fails=MUL)], on_failure="fallback").lower(Net(), (X,))
    assert "aten_mul_tensor" in lowered.plan["forward"].fallback


def test_a_budget_counts_what_fell_back_and_keeps_the_failure_as_its_cause(moody):
    plugin, budget = moody(fails=MUL), {"fallback_ops": ["aten.cumsum.*", "dim_order_ops.*"]}
    lowerer = Lowerer([plugin], on_failure="fallback", budget=budget)
    with pytest.raises(BudgetError) as caught:
        lowerer.lower(Net(), (X,))
    assert "its compiler failed" in str(caught.value)
    assert isinstance(caught.value.__cause__, CompileError)


def test_the_registry_says_what_a_failure_is(moody, tmp_path):
    path = tmp_path / "registry.toml"
    path.write_text('on_failure = "fallback"\n')
    Lowerer([moody(fails=MUL)], registry=path).lower(Net(), (X,))
    with pytest.raises(CompileError):
        Lowerer([moody(fails=MUL)], registry=path, on_failure="error").lower(Net(), (X,))


def test_another_word_for_a_failure_is_refused(tmp_path):
    path = tmp_path / "registry.toml"
    path.write_text('on_failure = "ignore"\n')
    with pytest.raises(RegistryError, match="on_failure is 'ignore'; it must be one of"):
        load(path)
    with pytest.raises(EtdevError, match="on_failure: is 'ignore'; it must be one of 'error', "):
        Lowerer([], on_failure="ignore")


def test_of_partitions_compiled_together_only_the_guilty_one_falls_back(moody):
    plugin = moody(fails=MUL, compiler="MoodyTogetherBackend")
    lowered = Lowerer([plugin, "cpu"], on_failure="fallback").lower(Net(), (X,))
    owners = {entry.op: entry.owner for entry in lowered.plan["forward"].ledger}
    assert (owners[ADD], owners[MUL], owners[SUB]) == ("moody", "cpu", "moody")
    assert_agrees(lowered, Net(), (X,))
