"""What applications read of a .pte, compare with PyTorch, and make of a user's settings."""

from __future__ import annotations

import math

import click
import pytest
import torch
from attrs import evolve
from support.models import nets
from torch import nn

from etdev import Lowerer, Registry
from etdev.app import EagerMethod, ProgramFile, Setup, options, quantizers
from etdev.errors import PluginError, RunError
from etdev.runtime.runners import PYTHON

MODULE, INPUTS = nets.mlp()


def test_a_program_file_is_run_on_inputs_that_it_takes(mlp_pte):
    file = ProgramFile(mlp_pte)
    inputs = file.inputs("forward", file.random_inputs())
    (result,) = PYTHON.call(file.runnable(), [("forward", inputs)], 1, 60.0).values
    torch.testing.assert_close(result.outputs[0], MODULE(*inputs), rtol=1e-4, atol=1e-5)
    assert (file.plan, file.find_data()) == (None, None)
    with pytest.raises(RunError, match=r"has no method 'decode'; it has forward"):
        file.inputs("decode", inputs)


def test_a_plan_is_reconstructed_from_instructions(mlp_pte):
    (method,) = ProgramFile(mlp_pte).reconstructed_plan().methods
    assert method.delegates == ("XnnpackBackend #0", "XnnpackBackend #1")
    assert [entry.op for entry in method.ledger] == ["aten.native_layer_norm.out"]
    (tensor,) = method.partitions[0].inputs
    assert (tensor.name, tensor.dtype, tensor.size_bytes) == ("input 0", "float32", 64)


class Sum(nn.Module):
    """Adds up what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 1


def test_calls_carry_the_state_on_and_leave_the_module_as_it_was():
    module, one = Sum(), torch.ones(2)
    method = EagerMethod.of_model(module, (one,))["forward"]
    calls = method.calls([[one], [one]], 2)
    assert [call.outputs[0].tolist() for call in calls] == [[1.0, 1.0], [2.0, 2.0]]
    assert module.total.tolist() == [0.0, 0.0]
    assert (method.name, method.is_random, method.flat(one)) == ("forward", False, [one])
    lowered = Lowerer([]).lower({"forward": method.exported})
    assert lowered.plan["forward"].ledger.owned() == {"portable": 2}


def test_calls_of_an_exported_program_are_replayed_in_order_and_errors_come_through():
    module, one = Sum(), torch.ones(2)
    program = torch.export.export(module, (one,))
    assert EagerMethod.written(program) == {"total"}
    method = EagerMethod.of_program(module, program, (one,))
    calls = EagerMethod.replay([(method, [one], False), (method, [one], True)])
    assert [(c.outputs[0].tolist(), c.drawn) for c in calls] == [([1, 1], False), ([2, 2], True)]
    again = EagerMethod.of_program(module, program, (one,))
    with pytest.raises(Exception, match="size"):
        EagerMethod.replay([(again, [torch.ones(3)], False)])


def test_replayed_methods_share_the_state_that_their_modules_share():
    module, one = Sum(), torch.ones(2)
    modules = [module, nn.Sequential(module)]
    programs = [torch.export.export(own, (one,)) for own in modules]
    pairs = zip(modules, programs, strict=True)
    methods = [EagerMethod.of_program(own, program, (one,)) for own, program in pairs]
    calls = EagerMethod.replay([(method, [one], False) for method in methods])
    assert [call.outputs[0].tolist() for call in calls] == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("wanted", "output", "error"),
    [
        (torch.tensor([4.0, 2.0]), torch.tensor([4.0, 1.0]), 0.25),
        (torch.tensor([4.0, math.inf]), torch.tensor([2.0, math.inf]), 0.5),
        (torch.tensor([1.0]), torch.tensor([math.nan]), math.inf),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), math.inf),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), math.inf),
        (torch.tensor([1]), torch.tensor([2]), math.inf),
        (torch.tensor([1], dtype=torch.int8), torch.tensor([2], dtype=torch.int8), 0.0),
        ("text", "text", 0.0),
    ],
)
def test_an_error_is_relative_to_the_largest_value(wanted, output, error):
    assert EagerMethod.error([wanted], [output]) == pytest.approx(error)
    assert EagerMethod.error([wanted], []) == math.inf


def test_a_setup_lowers_as_its_registry_and_its_file_say():
    setup = Setup.of(["cpu"], registry=Registry(), pins=[{"plugin": "portable", "op": "aten.*"}])
    assert (list(setup.plugins), setup.registry.names) == (["cpu"], ("cpu",))
    plain = evolve(setup.registry, pins=())
    owners = [set(setup.lowerer(r).plan(MODULE, INPUTS)["forward"].ledger.owned())
              for r in (setup.registry, plain)]  # fmt: skip
    assert owners == [{"portable"}, {"cpu", "portable"}]
    tables = Setup.tables(setup.registry)
    assert tables["pin"] == [{"plugin": "portable", "op": "aten.*"}]
    assert (list(tables["plugins"]), tables["simplify"]) == (["cpu"], True)


def test_quantisers_have_the_name_of_their_plugin():
    assert callable(quantizers(["cpu"])["cpu:int8"])
    assert quantizers(Lowerer(["cpu"]).plugins).keys() == quantizers(["cpu"]).keys()
    with pytest.raises(PluginError, match="nobody"):
        quantizers(["nobody"])


def test_a_size_is_a_number_of_bytes():
    assert options.SIZE("20MB") == 20_000_000
    with pytest.raises(click.BadParameter, match="'many' is not a size; write 20MB"):
        options.SIZE("many")
