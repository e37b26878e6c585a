"""etdev diff: what changed between two plans or .pte files, and its exit code."""

from __future__ import annotations

import json
from collections import OrderedDict

import pytest
import torch
from attrs import evolve
from executorch.exir import ExecutorchBackendConfig
from support.models import nets
from support.shell import cells, fails, invoke, succeeds
from torch import nn

from etdev import Lowerer, Pin, diff


@pytest.fixture(scope="module")
def files(tmp_path_factory, mlp_lowered):
    """The MLP: two plans, and each as a .pte with and without its ledger."""
    folder = tmp_path_factory.mktemp("diff")
    pinned = Lowerer(["cpu"], pins=[Pin("portable", op="aten.relu.*")]).lower(*nets.mlp())
    for name, lowered in (("one", mlp_lowered), ("two", pinned)):
        (folder / f"{name}.json").write_text(lowered.plan.to_json())
        lowered.save(folder / f"{name}.pte")
        lowered.save(folder / f"{name}_ledger.pte", with_ledger=True)
    return folder


def difference(files, before, after):
    done = invoke("diff --json", files / before, files / after)
    document = json.loads(done.stdout)
    assert (document["schema"], document["version"]) == ("etdev.difference", 2)
    assert done.exit_code == int(document["changed"])
    return document


def test_the_same_is_no_change(files):
    for name in ("one.json", "one.pte", "one_ledger.pte"):
        text = succeeds("diff", files / name, files / name)
        seen = "same bytes" if name.endswith(".pte") else "equal plans"
        assert text == f"{files / name}: no change from {files / name}: {seen}\n"
    assert not difference(files, "one.json", "one_ledger.pte")["changed"]
    assert fails("diff", files / "one.json", files / "one.pte").endswith(
        "holds no ledger; lower it without --no-ledger, or name the model or its plan instead"
    )


def test_plans_that_differ_elsewhere_are_no_same(files, tmp_path, mlp_lowered):
    plan = mlp_lowered.plan
    (tmp_path / "other.json").write_text(evolve_first(plan, simplified={"copies": 1}).to_json())
    document = difference(files, "one.json", tmp_path / "other.json")
    (part,) = document["parts"]
    assert part["kind"] == "field"
    assert part["before"] == "methods[0].simplified.copies: None"
    assert part["after"] == "methods[0].simplified.copies: 1"


def test_weights_outside_of_the_files_are_compared_too(tmp_path):
    config, net, x = (
        ExecutorchBackendConfig(external_constants=True),
        nn.Linear(4, 3),
        torch.ones(1, 4),
    )
    one = Lowerer([]).lower(net, (x,)).save(tmp_path / "one.pte", config)
    with torch.no_grad():
        net.weight.mul_(2)
    two = Lowerer([]).lower(net, (x,)).save(tmp_path / "two.pte", config)
    (part,) = difference(tmp_path, one, two)["parts"]
    assert part["kind"] == "contents of the .ptd"
    assert not difference(tmp_path, one, one)["changed"]
    for data in tmp_path.glob("*.ptd"):
        data.unlink()
    assert "keeps constants in a .ptd that is not in " in fails("diff", one, two)


def evolve_first(plan, **changes):
    return evolve(plan, methods=(evolve(plan.methods[0], **changes), *plan.methods[1:]))


@pytest.mark.parametrize("kind", [".json", "_ledger.pte"])
def test_nodes_partitions_and_figures_that_changed_are_told(files, kind):
    document = difference(files, f"one{kind}", f"two{kind}")
    (node,) = document["nodes"]
    assert (node["node"], node["before"], node["after"]) == (
        "aten_relu_default", "cpu on cpu", "portable on cpu",
    )  # fmt: skip
    lost, won = document["parts"]
    assert "2 nodes from aten.linear.default to aten.relu.default" in lost["before"]
    assert "1 node from aten.linear.default to aten.linear.default" in won["after"]
    assert (lost["after"], won["before"]) == (None, None)
    figures = {f["what"]: (f["before"], f["after"]) for f in document["figures"]}
    assert figures["forward: nodes of cpu"] == (3, 2)
    assert figures["forward: nodes of portable"] == (1, 2)


def test_files_without_a_ledger_are_told_apart_by_their_figures(files):
    document = difference(files, "one.pte", "two.pte")
    figures = {f["what"]: (f["before"], f["after"]) for f in document["figures"]}
    assert figures["forward: calls of aten::relu.out"] == (0, 1)
    assert document["nodes"] == []


def test_other_weights_in_the_same_plan_are_a_change(files, tmp_path):
    module, inputs = nets.mlp()
    module[0].weight.data += 1
    other = Lowerer(["cpu"]).lower(module, inputs).save(tmp_path / "other.pte")
    document = difference(files, "one.pte", other)
    assert [part["kind"] for part in document["parts"]] == ["contents"]


def test_the_table_shows_it(files):
    done = invoke("diff", files / "one.json", files / "two.json")
    rows = cells(done.stdout)
    assert "forward: nodes of cpu 3 2" in rows
    assert "aten_relu_default aten.relu.default forward cpu on cpu portable on cpu" in rows


def test_a_method_that_only_one_has_is_gone(files, tmp_path, mlp_lowered):
    plan = Lowerer([]).plan({"other": nets.mlp()})
    (tmp_path / "other.json").write_text(plan.to_json())
    document = difference(files, "one.json", tmp_path / "other.json")
    kinds = {(part["kind"], part["before"], part["after"]) for part in document["parts"]}
    assert ("method", "method forward", None) in kinds
    assert ("method", None, "method other") in kinds
    assert {(node["method"], node["before"] is None) for node in document["nodes"]} == {
        ("forward", False), ("other", True),
    }  # fmt: skip


def test_what_is_neither_is_named(files, here):
    (here / "net.bin").write_bytes(b"\xff")
    assert fails("diff", files / "one.json", "net.bin") == (
        "net.bin: can't be read (it is not text); write it with etdev plan --json"
    )
    assert fails("diff", files / "one.json", "gone.json") == (
        "gone.json: can't be read (No such file or directory); write it with etdev plan --json"
    )


def layers(*names):
    return torch.nn.Sequential(
        OrderedDict((name, torch.nn.Linear(8, 8)) for name in names)
    ).eval(), (torch.ones(1, 8),)


@pytest.mark.parametrize("plugins", [[], ["cpu"]], ids=["portable", "cpu"])
def test_a_new_layer_is_all_that_changes_though_the_numbers_of_others_shift(plugins):
    lowerer = Lowerer(plugins)
    old, new = (lowerer.plan(*layers(*names)) for names in (("a", "b"), ("new", "a", "b")))
    difference = diff(old, new)
    assert {(node.module, node.before) for node in difference.nodes} == {("new", None)}
    back = diff(new, old)
    assert {(node.module, node.after) for node in back.nodes} == {("new", None)}
