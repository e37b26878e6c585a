"""etdev explain: fallbacks by reason, the facts of a node, from a model, its plan, or its .pte."""

from __future__ import annotations

import json

import pytest
import torch
from support.models.small import Function
from support.shell import cells, fails, invoke, succeeds
from support.toys import Takes

from etdev import Lowerer, Plan
from etdev.pte.embedded_plan import read_ledger
from etdev.report.explanation import Explanation, Query

NODE = "aten_native_layer_norm_default"
OP = "aten.native_layer_norm.default"
REASON = "XNNPACK has no native_layer_norm.default"
# Two softmaxes of one line, one of them of integers, and a module within a module.
NET = """\
import torch


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softmax(x, -1).cumsum(0).cumsum(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.second = torch.nn.Sequential(Inner())

    def forward(self, x):
        return self.second(self.first(x))


def model():
    return Net(), (torch.ones(2, 4),)
"""


@pytest.fixture
def plan_file(mlp_lowered, here) -> str:
    (here / "plan.json").write_text(mlp_lowered.plan.to_json())
    return "plan.json"


@pytest.fixture(scope="session")
def ledger_pte(mlp_lowered, tmp_path_factory):
    return mlp_lowered.save(tmp_path_factory.mktemp("ledger") / "mlp.pte", with_ledger=True)


@pytest.fixture
def net(here) -> str:
    (here / "net.py").write_text(NET)
    return "net.py:model"


def test_what_falls_back_is_grouped_by_op_and_reason_with_its_lines(net):
    rows = cells(succeeds(f"explain {net} --plugin cpu"))
    assert rows[:3] == [
        "method nodes owner precision",
        "forward 4 portable float32 4",
        "2 cpu float32 2",
    ]
    assert rows[3] == "on portable kernels nodes cost why where"
    share, why = "67 % of the bytes", "cpu: XNNPACK has no cumsum.default"
    assert rows[4] == f"aten.cumsum.default 4 {share} {why} net.py:6"


def test_a_module_stands_for_all_that_is_in_it(net):
    document = json.loads(succeeds(f"explain {net} --plugin cpu --module second --json"))
    assert len(document["nodes"]) == 3
    assert {told["entry"]["module"] for told in document["nodes"]} == {"second.0"}
    assert len(json.loads(succeeds(f"explain {net} --plugin cpu --json"))["missed"]) == 1


def test_an_op_is_found_by_what_it_was_before_export(net):
    document = json.loads(succeeds(f"explain {net} --plugin cpu --op aten.softmax.int --json"))
    assert {told["entry"]["op"] for told in document["nodes"]} == {"aten._softmax.default"}
    assert (document["schema"], document["version"]) == ("etdev.explanation", 3)


def test_of_one_node_every_fact_is_shown(plan_file):
    rows = cells(succeeds(f"explain {plan_file} --node {NODE}"))
    assert rows[0] == f"forward/{NODE}"
    assert {"source op aten.layer_norm.default", "module 2", "owner portable"} <= {*rows}
    assert any(row.startswith("line normalization.py:") for row in rows)
    assert rows[-2:] == [f"cpu op {REASON}", "portable claimed"]


def test_an_owned_node_has_its_group_its_partition_and_what_splits_it(plan_file):
    rows = cells(succeeds(f"explain {plan_file} --node aten_linear_default_1"))
    assert "group of cpu aten_linear_default_1 LinearConfig" in rows
    assert rows[-1].startswith("cpu_1 XnnpackBackend cpu default 1 ")
    assert rows[-1].endswith(NODE)


def test_a_plugin_is_told_what_it_has_not_got(plan_file):
    rows = cells(succeeds(f"explain {plan_file} --asked cpu"))
    assert rows[3] == "not cpu's nodes cost owner why where"
    left = f"{OP} 1 22 % of the bytes portable cpu: {REASON} normalization.py:"
    assert left in rows[4].rsplit(":", 1)[0] + ":"


def test_a_plugins_own_refusals_come_before_what_it_lost():
    def compute(x):
        return (x * x * 2 * x).sum() + 1

    plugins = [Takes("first", ("mul.Tensor",)), Takes("second", ("mul.Tensor",))]
    plan = Lowerer(plugins).plan(Function(compute), (torch.ones(3),))
    missed = Explanation(plan, Query(asked="second")).missed
    reasons = [(item.op, item.reasons[0].code, len(item.nodes)) for item in missed]
    assert reasons[0][1:] == reasons[1][1:] == ("op", 1)
    assert reasons[2:] == [("aten.mul.Tensor", "lost", 3)]


def test_a_plan_in_json_is_read_without_torch(plan_file, monkeypatch):
    monkeypatch.setattr("etdev.cli.progress.import_torch", lambda *_: pytest.fail("loads torch"))
    succeeds(f"explain {plan_file}")


def test_a_pte_tells_what_its_plan_tells(mlp_lowered, ledger_pte, plan_file):
    assert read_ledger(ledger_pte) == mlp_lowered.plan
    words = ("--node", NODE)
    assert succeeds("explain", ledger_pte, *words) == succeeds("explain", plan_file, *words)


def test_a_pte_without_a_ledger_says_how_to_get_one(mlp_pte):
    assert fails("explain", mlp_pte) == (
        f"{mlp_pte}: holds no ledger; lower it without --no-ledger, or name the model or its plan "
        "instead"
    )


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("--node aten_linear_defalt", "; did you mean aten_linear_default?"),
        ("--op aten.liner.default", "; did you mean aten.linear.default?"),
        ("--module 22", "; did you mean 2?"),
        ("--asked cup", "; did you mean cpu?"),
        ("--asked npu7", "; the plugins are cpu, portable"),
        (f"--node {NODE} --module 0", ""),
    ],
)
def test_what_matches_nothing_is_named(plan_file, words, cure):
    assert fails(f"explain {plan_file} {words}") == f"plan.json: no node matches {words}{cure}"


def test_options_of_a_lowering_need_a_model(plan_file):
    done = invoke(f"explain {plan_file} --plugin cpu")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--plugin, --device, --pin, --strict and --registry need a SOURCE" in done.stderr


def test_a_file_that_is_not_a_plan_is_named_with_its_key(plan_file, here):
    data = json.loads((here / plan_file).read_text())
    data["methods"][0]["partitions"][1]["device"] = "gpu:0"
    (here / plan_file).write_text(json.dumps(data))
    assert fails(f"explain {plan_file}") == (
        "plan.json: is not a plan: methods[0].partitions[1].device unknown type 'gpu', valid are "
        "cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0; "
        "write it with etdev plan --json"
    )


def test_a_model_may_have_no_nodes_left_to_explain(here):
    (here / "empty.json").write_text(Plan(()).to_json())
    assert cells(succeeds("explain empty.json")) == ["method nodes owner precision"]


CLONES = """\
import torch


class Clones(torch.nn.Module):
    def forward(self, x):
        doubled = (x + x).clone()
        return doubled * doubled.view(2, 4)


def model():
    return Clones(), (torch.ones(2, 4),)
"""


def test_simplified_nodes_are_counted_by_kind(here):
    (here / "net.py").write_text(CLONES)
    rows = cells(succeeds("explain net.py:model --plugin cpu"))
    assert rows[-2:] == [
        "simplified nodes",
        "copies 2",
    ]
