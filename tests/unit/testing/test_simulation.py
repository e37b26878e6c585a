"""Simulation: delegates of several backends run together, wherever each can."""

import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401  loads XnnpackBackend
import pytest
import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.toys.sins import on_backend, sums

from etdev import Claim, Lowerer, Registry, RunError, hookimpl
from etdev.testing import Simulation
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import Pointwise, X, Y
from etdev.testing.subject import runner

SIMULATORS = {"Sums": sums}


class StoredBackend(BackendDetails):
    """Keeps a number in named data, inside the .pte and outside, and has one in its specs."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        store = NamedDataStore()
        store.add_named_data("two", b"2")
        store.add_named_data("three", b"3", external_tag="weights")
        return PreprocessResult(b"", data_store_output=store.get_named_data_store_output())


def test_a_simulator_is_given_the_named_data_and_the_specs_that_it_asks_for():
    class Stored(Accelerator):
        @hookimpl
        def claim_nodes(self, program):
            groups = super().claim_nodes(program).groups
            return Claim("StoredBackend", groups, compile_specs={"times": b"10"})

    def simulate(payload, inputs, data, compile_specs):
        factor = int(data["two"]) * int(data["three"]) * int(compile_specs["times"])
        return [inputs[0] * factor]

    lowered = Lowerer([Stored("stored")], registry=Registry()).lower(Scaled(), (X,))
    (output,) = Simulation.of(lowered, {"StoredBackend": simulate})(X)
    torch.testing.assert_close(output, X * 60)


class Scaled(torch.nn.Module):
    def forward(self, x):
        return x * 60


def lowered():
    """Sums between which XNNPACK multiplies."""
    rival = Accelerator("rival", ops=("mul.Tensor",), backend="XnnpackBackend")
    return Lowerer([on_backend("Sums")(), rival], registry=Registry()).lower(Pointwise(), (X, Y))


def test_a_delegate_that_the_runtime_has_runs_there_beside_a_simulated_one():
    program = lowered()
    assert program.plan["forward"].ledger.owned() == {"adder": 2, "rival": 1}
    simulation = Simulation.of(program, SIMULATORS)
    for x, y in [(X, Y), (Y, X), (X, X)]:
        (output,) = simulation(x, y)
        torch.testing.assert_close(output, Pointwise()(x, y))
    run, simulated = runner(program, SIMULATORS)
    assert simulated == "Sums"
    torch.testing.assert_close(run([(X, Y)])[0][0], Pointwise()(X, Y))


def test_a_delegate_that_nothing_can_run_is_named_with_what_to_give():
    with pytest.raises(RunError) as caught:
        Simulation.of(lowered())(X, Y)
    assert str(caught.value).startswith(
        "Sums: this runtime does not have it, and no simulator is given; "
        'give one: simulators={"Sums": simulate}'
    )
