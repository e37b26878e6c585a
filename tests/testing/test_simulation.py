"""Simulation: delegates of several backends run together, wherever each can."""

import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401  loads XnnpackBackend
import pytest
import torch
from toys.sins import on_backend, sums

from etdev import Lowerer, Registry, RunError
from etdev.testing import Simulation
from etdev.testing.execution import runner
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import Pointwise, X, Y

SIMULATORS = {"Sums": sums}


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
