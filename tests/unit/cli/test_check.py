"""etdev check: the verdict, the problems and the exit code."""

from __future__ import annotations

import pytest
import torch
from support.models.small import Function
from support.shell import invoke, succeeds
from support.toys.accelerator import Accelerator

from etdev import Device, Lowerer


def test_the_command_says_that_all_is_well(mlp_lowered, mlp_pte, here):
    (here / "plan.json").write_text(mlp_lowered.plan.to_json())
    text = succeeds("check --plan plan.json", mlp_pte)
    assert text == f"{mlp_pte}: loads here\n"


def test_the_command_lists_problems_and_exits_with_1(here):
    plugin = Accelerator(ops=("add.Tensor",), device=Device("cuda", 0))
    Lowerer([plugin]).lower(Function(torch.add), (torch.ones(2, 2), torch.ones(2, 2))).save(
        "cuda.pte"
    )
    done = invoke("check cuda.pte")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert (
        "cuda.pte: method forward: the runtime has no backend FakeAccelerator; "
        "run it with one that is built with it, or lower without its plugin"
    ) in lines


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--device gpu", "error: device: unknown type 'gpu'"),
        (
            "--target nowhere",
            "error: nowhere: is not a target; the registry has none; write [targets.",
        ),
        ("--plan nowhere.json", "error: nowhere.json: can't be read"),
        ("--plan broken.json", "error: broken.json: is not a plan"),
    ],
)
def test_bad_arguments_are_named(mlp_pte, here, words, error):
    (here / "broken.json").write_text("{")
    done = invoke(f"check {words}", mlp_pte)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(error)
    assert "Traceback" not in done.stderr
