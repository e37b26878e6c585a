"""etdev inspect: what a .pte holds, as tables and as JSON, and files that are damaged."""

from __future__ import annotations

import json
import random

import pytest
from support.shell import cells, fails, succeeds

from etdev.pte.read import read


def test_inspect_shows_delegates_memory_and_kernels(mlp_pte):
    rows = cells(succeeds("inspect", mlp_pte))
    assert any(row.startswith("XnnpackBackend cpu 2 ") for row in rows)
    assert any(row.startswith("planned memory cpu - ") for row in rows)
    assert "aten::native_layer_norm.out 1" in rows


def test_inspect_shows_inputs_and_outputs(mlp_pte, dynamic_pte):
    rows = cells(succeeds("inspect", mlp_pte))
    assert "input 0 float32 2 x 8 cpu" in rows
    assert "output 0 float32 2 x 4 cpu" in rows
    assert "input 0 float32 up to 8 x 4 cpu" in cells(succeeds("inspect", dynamic_pte))


def test_inspect_tells_a_ledger_from_the_delegates_data(mlp_lowered, mlp_pte, here):
    path = mlp_lowered.save(here / "with.pte", with_ledger=True)
    plain, carrying = read(mlp_pte), read(path)
    assert (plain.ledger_bytes, carrying.ledger_bytes > 0) == (0, True)
    assert (plain.named, plain.named_bytes) == (carrying.named, carrying.named_bytes)
    assert plain.methods == carrying.methods
    assert mlp_lowered.save(here / "without.pte").read_bytes() == mlp_pte.read_bytes()


def test_inspect_as_json_is_the_artifact(mlp_pte):
    assert json.loads(succeeds("inspect --json", mlp_pte)) == read(mlp_pte).to_dict()


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "run"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing.pte", "can't be read (No such file or directory)"),
        ("truncated.pte", "is damaged or truncated ("),
        ("disguised.pte", "is damaged or truncated ("),
        ("text.pte", "is not a .pte file"),
    ],
)
def test_a_damaged_pte_is_named(command, name, what, mlp_pte, here):
    whole, noise = mlp_pte.read_bytes(), random.Random(0).randbytes(4096)
    data = {
        "truncated.pte": whole[: len(whole) // 2],
        "disguised.pte": whole[:8] + noise,
        "text.pte": b"some text\n",
    }
    if name in data:
        (here / name).write_bytes(data[name])
    error = fails(command, name)
    assert error.startswith(f"{name}: {what}")
    assert error.endswith("; give a .pte that ExecuTorch wrote")
