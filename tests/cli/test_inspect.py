"""etdev inspect: what a .pte holds, as tables and as JSON, and files that are damaged."""

from __future__ import annotations

import json
import random

import pytest
from shell import cells, fails, succeeds

from etdev.pte.read import read


def test_inspect_shows_delegates_memory_and_kernels(mlp_pte):
    rows = cells(succeeds("inspect", mlp_pte))
    assert any(row.startswith("XnnpackBackend cpu 2 ") for row in rows)
    assert any(row.startswith("planned memory cpu - ") for row in rows)
    assert "aten::native_layer_norm.out 1" in rows


def test_inspect_as_json_is_the_artifact(mlp_pte):
    assert json.loads(succeeds("inspect --json", mlp_pte)) == read(mlp_pte).to_dict()


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "run"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing.pte", "can't be read (No such file or directory)"),
        ("truncated.pte", "is damaged or truncated ("),
        ("disguised.pte", "is damaged or truncated ("),
        ("random.pte", "is not a .pte file"),
        ("text.pte", "is not a .pte file"),
        ("empty.pte", "is not a .pte file"),
    ],
)
def test_a_damaged_pte_is_named(command, name, what, mlp_pte, here):
    whole, noise = mlp_pte.read_bytes(), random.Random(0).randbytes(4096)
    data = {
        "truncated.pte": whole[: len(whole) // 2],
        "disguised.pte": whole[:8] + noise,
        "random.pte": noise,
        "text.pte": b"some text\n",
        "empty.pte": b"",
    }
    if name in data:
        (here / name).write_bytes(data[name])
    error = fails(command, name)
    assert error.startswith(f"{name}: {what}")
    assert error.endswith("; give a .pte that ExecuTorch wrote")
