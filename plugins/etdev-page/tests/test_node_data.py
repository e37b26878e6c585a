"""Node data for Model Explorer: every node of a plan, with who has it, where and why."""

from __future__ import annotations

import json

from etdev_page.node_data import node_data
from support.shell import MLP, succeeds

from etdev import Lowerer
from etdev.schema.profile import Instruction, Profile


def test_every_node_has_owner_device_and_reason(mlp_lowered):
    data = node_data(mlp_lowered.plan)
    nodes = [entry.node for entry in mlp_lowered.plan["forward"].ledger]
    sources = {entry.source for entry in mlp_lowered.plan["forward"].ledger}
    assert sources == {"linear", "relu", "layer_norm", "linear_1"}
    for name, graphs in data.items():
        # A .pt2 has the exported program.
        assert set(graphs["graph"]["results"]) == sources
        assert graphs["forward"]["name"] == f"etdev {name}"
        # Once as it is called, and once as Model Explorer's extension calls it.
        assert set(graphs["forward"]["results"]) == {*nodes, *(f"{node}_" for node in nodes)}
    norm = "aten_native_layer_norm_default_"
    told = {name: graphs["forward"]["results"][norm]["value"] for name, graphs in data.items()}
    assert told == {
        "owner": "portable",
        "device": "cpu",
        "reason": "cpu: XNNPACK has no native_layer_norm.default",
    }


def test_owners_have_colours_of_their_own(mlp_lowered):
    results = node_data(mlp_lowered.plan)["owner"]["forward"]["results"]
    colours = {result["value"]: result["bgColor"] for result in results.values()}
    assert colours["cpu_0"] == colours["cpu_1"] != colours["portable"]


def test_a_profile_adds_times_and_the_instructions_of_the_pte(mlp_lowered):
    times = {"cpu_0": 0.5, "aten_native_layer_norm_default": 0.125}
    steps = (
        Instruction(0, 0, "cpu_0", 0.5),
        Instruction(0, 1, "aten::native_layer_norm.out", 0.125),
    )
    data = node_data(mlp_lowered.plan, Profile("forward", (), 3, times, instructions=steps))
    told = {name: graphs["forward"]["results"] for name, graphs in data.items()}
    values = {node: result["value"] for node, result in told["time"].items()}
    assert values == {
        "aten_linear_default": 0.5, "aten_linear_default_": 0.5,
        "aten_relu_default": 0.5, "aten_relu_default_": 0.5,
        "aten_native_layer_norm_default": 0.125, "aten_native_layer_norm_default_": 0.125,
        "forward_0_0": 0.5, "forward_0_1": 0.125,
    }  # fmt: skip
    assert told["owner"]["forward_0_0"] == told["owner"]["aten_linear_default"]
    reason = "cpu: XNNPACK has no native_layer_norm.default"
    assert told["reason"]["forward_0_1"]["value"] == reason


def test_the_command_writes_a_file_for_each_set(tmp_path, mlp_lowered, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Lowerer, "plan", lambda *_: mlp_lowered.plan)
    succeeds(f"plan {MLP} --plugin cpu --view node-data=graph")
    files = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "graph").iterdir()}
    assert files == node_data(mlp_lowered.plan)
