"""etdev diff: what changed between two plans or .pte files, and its exit code."""

from __future__ import annotations

import json
from collections import OrderedDict
from importlib.metadata import version

import pytest
import torch
from models import nets
from shell import cells, fails, invoke, succeeds

from etdev import Lowerer, Pin
from etdev.lowering.locking import lock_of


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
    assert (document["schema"], document["version"]) == ("etdev.difference", 1)
    assert done.exit_code == int(document["changed"])
    return document


def test_the_same_is_no_change(files):
    for name in ("one.json", "one.pte", "one_ledger.pte"):
        text = succeeds("diff", files / name, files / name)
        assert text == f"{files / name}: no change from {files / name}\n"
    assert not difference(files, "one.json", "one_ledger.pte")["changed"]
    assert fails("diff", files / "one.json", files / "one.pte").endswith(
        "holds no ledger; lower it with --with-ledger, or name the model or its plan instead"
    )


@pytest.mark.parametrize("kind", [".json", "_ledger.pte"])
def test_nodes_modules_partitions_and_figures_that_changed_are_told(files, kind):
    document = difference(files, f"one{kind}", f"two{kind}")
    (node,) = document["nodes"]
    assert (node["node"], node["before"], node["after"]) == (
        "aten_relu_default", "cpu on cpu", "portable on cpu",
    )  # fmt: skip
    assert [module["module"] for module in document["modules"]] == ["1"]
    (part,) = document["parts"]
    assert "2 nodes from aten_linear_default to aten_relu_default" in part["before"]
    assert "1 nodes from aten_linear_default to aten_linear_default" in part["after"]
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
    assert "forward: nodes of cpu 3 2 -1" in rows
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
        "net.bin: is not a plan (it is not text); write it with etdev plan --json"
    )
    assert fails("diff", files / "one.json", "gone.json") == (
        "gone.json: can't be read (No such file or directory); give a file"
    )


@pytest.fixture(scope="module")
def locks(tmp_path_factory, files):
    """The lock of a .pte, and that of one with a pin."""
    folder = tmp_path_factory.mktemp("locks")
    for name, pins in (("one", []), ("two", [Pin("portable", op="aten.relu.*")])):
        lowerer = Lowerer(["cpu"], pins=pins)
        lowered = lowerer.lower(*nets.mlp())
        lock = lock_of(lowerer.compilation, lowered, lowered.save(folder / f"{name}.pte"))
        (folder / f"{name}.lock").write_text(lock.to_json())
    return folder


def test_two_locks_tell_what_differs(locks):
    assert not difference(locks, "one.lock", "one.lock")["changed"]
    document = difference(locks, "one.lock", "two.lock")
    parts = [(part["kind"], part["before"], part["after"]) for part in document["parts"]]
    assert ("setup", "pins []", "pins [op=aten.relu.*:plugin=portable]") in parts
    assert {kind for kind, *_ in parts} == {"setup", "partition", "contents"}
    assert all(before and after and before != after for _, before, after in parts)


def altered(locks, name, change):
    lock = json.loads((locks / "one.lock").read_text())
    change(lock)
    (locks / name).write_text(json.dumps(lock))
    return [
        (part["kind"], part["method"], part["before"], part["after"])
        for part in difference(locks, "one.lock", name)["parts"]
    ]


def test_every_part_of_a_lock_counts(locks):
    def upgrade(lock):
        lock["setup"]["versions"]["torch"] = "9.9"
        lock["setup"]["plugins"].insert(0, {"name": "other", "version": "1"})
        lock["setup"]["on_failure"] = "fallback"
        lock["program"]["forward"][0]["payload"] = "f" * 64
        # A lowering without a cache has no keys, and the same bytes.
        lock["program"]["forward"][0]["key"] = "e" * 64
        del lock["program"]["forward"][1]
        lock["program"]["second"] = []
        lock["files"][".ptd"] = "0" * 64

    (one, _) = json.loads((locks / "one.lock").read_text())["program"]["forward"]
    payload = f"cpu_0.payload {one['payload'][:12]}"
    parts = altered(locks, "upgraded.lock", upgrade)
    assert ("setup", "", f"versions.torch {version('torch')}", "versions.torch 9.9") in parts
    assert ("setup", "", "plugins.order cpu", "plugins.order other, cpu") in parts
    assert ("setup", "", None, "plugins.other.version 1") in parts
    assert ("setup", "", "on_failure error", "on_failure fallback") in parts
    assert ("partition", "forward", payload, "cpu_0.payload ffffffffffff") in parts
    assert not [part for part in parts if "cpu_0.key" in str(part)]
    assert ("partition", "forward", "order cpu_0, cpu_1", "order cpu_0") in parts
    assert ("partition", "forward", "cpu_1.plugin cpu", None) in parts
    assert ("method", "second", None, "method second") in parts
    assert ("contents", "", None, ".ptd 000000000000") in parts


@pytest.mark.parametrize("value", [None, 3, "text", [1], [{}], [{"name": "a"}, {"name": "a"}]])
def test_a_lock_with_other_values_is_a_difference(locks, value):
    parts = altered(locks, "odd.lock", lambda lock: lock["program"].update(forward=value))
    assert {kind for kind, *_ in parts} <= {"partition", "method"}
    assert parts


def test_a_lock_beside_something_else_is_named(locks, files):
    one, problem = locks / "one.lock", "is not a lock of version 1"
    assert problem in fails("diff", one, files / "one.json")
    (locks / "no.lock").write_text("{}")
    assert "no.lock: is not a lock of version 1" in fails("diff", locks / "no.lock", one)


def layers(*names):
    return torch.nn.Sequential(
        OrderedDict((name, torch.nn.Linear(8, 8)) for name in names)
    ).eval(), (torch.ones(1, 8),)


@pytest.mark.parametrize("plugins", [[], ["cpu"]], ids=["portable", "cpu"])
def test_a_new_layer_is_all_that_changes_though_the_numbers_of_others_shift(plugins):
    lowerer = Lowerer(plugins)
    old, new = (lowerer.plan(*layers(*names)) for names in (("a", "b"), ("new", "a", "b")))
    difference = old.diff(new)
    assert {(node.module, node.before) for node in difference.nodes} == {("new", None)}
    back = new.diff(old)
    assert {(node.module, node.after) for node in back.nodes} == {("new", None)}
    if not plugins:
        assert all(name.endswith(" (new)") for name in (node.node for node in difference.nodes[:1]))
