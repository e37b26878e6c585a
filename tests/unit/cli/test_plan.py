"""etdev plan: tables, JSON, and why a node is where it is."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from support.models import nets
from support.shell import MLP, cells, fails, succeeds

from etdev import Lowerer, Pin, Plan
from etdev.cli import results
from etdev.report import presenters
from etdev.report.explanation import Explanation, Query

NODE = "aten_native_layer_norm_default"
OP = "aten.native_layer_norm.default"
REASON = "XNNPACK has no native_layer_norm.default"


@pytest.fixture
def planned(mlp_lowered, monkeypatch):
    """Give the commands a plan that is made already."""
    monkeypatch.setattr(Lowerer, "plan", lambda *_: mlp_lowered.plan)


def test_plan_shows_owners_partitions_and_what_is_left(planned):
    rows = cells(succeeds(f"plan {MLP} --plugin cpu"))
    assert rows[0] == "method forward"
    assert "cpu 2 3 100 % of the FLOPs, 78 % of the bytes float32 3" in rows
    assert "portable - 1 22 % of the bytes float32 1" in rows
    assert any(row.startswith("cpu_0 XnnpackBackend cpu default 2 1 (64 B) ") for row in rows)
    assert any(
        row.startswith(f"{OP} 1 22 % of the bytes cpu: {REASON} ") and ".py:" in row for row in rows
    )


def test_plan_as_json_is_the_plan(mlp_lowered):
    text = succeeds(f"plan {MLP} --plugin cpu --json")
    assert json.loads(text)["methods"][0]["method"] == "forward"
    assert Plan.from_json(text) == mlp_lowered.plan


def test_all_shows_every_row(mlp_lowered, monkeypatch):
    (method,) = mlp_lowered.plan.methods
    first, second = method.partitions
    many = [evolve(first, name=f"cpu_{index}") for index in range(20)]
    plan = Plan((evolve(method, partitions=(*many, second), delegates=()),))
    monkeypatch.setattr(Lowerer, "plan", lambda *_: plan)
    assert "… and 9 more; --all shows them" in cells(succeeds(f"plan {MLP}"))
    rows = cells(succeeds(f"plan {MLP} --all"))
    assert [row.split()[0] for row in rows if row.startswith("cpu_")] == [
        *(f"cpu_{index}" for index in range(20)), "cpu_1",
    ]  # fmt: skip


def test_why_shows_what_every_plugin_said_about_a_node(planned):
    shown = succeeds(f"plan {MLP} --plugin cpu --why {NODE}")
    (head, *_), (_, row, last) = cells(shown), shown.splitlines()
    assert head == "node op module owner precision pin plugin verdict reason"
    assert row.split()[:8] == [NODE, OP, "2", "portable", "float32", "-", "cpu", "op"]
    assert row.rstrip().endswith(REASON)
    assert last.split() == ["portable", "claimed"]


def test_why_takes_a_glob(planned):
    rows = cells(succeeds(f"plan {MLP} --plugin cpu --why aten_linear_*"))
    assert [row.split()[0] for row in rows[1:]] == ["aten_linear_default", "aten_linear_default_1"]


def test_why_as_json_has_the_entry_of_the_ledger(planned):
    document = json.loads(succeeds(f"plan {MLP} --plugin cpu --json --why {NODE}"))
    assert (document["schema"], document["version"]) == ("etdev.explanation", 3)
    (told,) = document["nodes"]
    entry = told["entry"]
    facts = told["method"], entry["node"], entry["op"], entry["owner"]
    assert facts == ("forward", NODE, OP, "portable")
    # Of a torch.nn.Sequential only torch's own lines are known.
    assert entry["line"].startswith("normalization.py:")
    assert entry["verdicts"] == [
        {"plugin": "cpu", "code": "op", "text": REASON},
        {"plugin": "portable", "code": "claimed", "text": ""},
    ]


def test_pins_show_in_the_plan_and_in_why(capsys):
    kept, missed = "module=1:plugin=portable", "op=aten.native_layer_norm.*:plugin=cpu"
    plan = Lowerer(["cpu"], pins=[Pin.parse(kept), Pin.parse(missed)]).plan(*nets.mlp())
    results.show(presenters.sheets(plan))
    rows = cells(capsys.readouterr().out)
    assert f"{kept} 1 -" in rows
    assert f"{missed} 1 1" in rows
    for node, pin in (("aten_relu_default", kept), (NODE, f"{missed} (not kept)")):
        results.show(presenters.nodes(Explanation(plan, Query(node))), True)
        assert f" {pin} " in " ".join(capsys.readouterr().out.split())


def test_why_of_an_unknown_node_names_close_ones(planned):
    assert fails(f"plan {MLP} --plugin cpu --why aten_relu_defualt") == (
        "plan: no node matches --why aten_relu_defualt; did you mean aten_relu_default?"
    )
    assert fails(f"plan {MLP} --plugin cpu --why zzz") == "plan: no node matches --why zzz"
