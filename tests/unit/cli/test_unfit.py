"""Plugins that can't compile on this machine: left out, or refused before the model is loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.shell import MLP, invoke, succeeds
from support.shell.distributions import put

# It claims what no backend is there for.
NPU = """
from etdev import Claim, Group, Probe, hookimpl

class Plugin:
    @hookimpl
    def probe(self):
        return Probe(unfit="no NPU is here; plug one in")

    @hookimpl
    def claim_nodes(self, program):
        linear = [node for node in program.graph.nodes if "addmm" in str(node.target)]
        return Claim("NpuBackend", [Group([node]) for node in linear])
"""
LEFT_OUT = "warning: npu is left out: it can't compile here: no NPU is here; plug one in"
REFUSED = "error: npu: can't compile here: no NPU is here; plug one in; planning works here; "


@pytest.fixture(autouse=True)
def npu(here, monkeypatch):
    monkeypatch.syspath_prepend(here / "site")
    (here / "site").mkdir()
    monkeypatch.delenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    put(here / "site", "etdev-npu", NPU, {"etdev": {"npu": "{module}:Plugin"}})
    yield
    sys.modules.pop("etdev_npu", None)


def registry(text):
    Path("registry.toml").write_text(text)


def owners():
    return json.loads(succeeds(f"plan {MLP} --json"))["methods"][0]["partitions"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('unlisted = "last"\n[plugins.cpu]\n', ""),
        ("[plugins.npu]\noptional = true\n[plugins.cpu]\n", ""),
        ("[plugins.npu]\n[plugins.cpu]\n", "--on-failure fallback"),
        ('on_failure = "fallback"', "--plugin npu --plugin cpu"),
    ],
)
def test_it_is_left_out_with_one_line_unless_the_user_named_it(text, words):
    registry(text)
    done = invoke(f"lower {MLP} -o mlp.pte {words}")
    assert done.exit_code == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if "npu is left out" in line] == [LEFT_OUT]
    assert lines.index(LEFT_OUT) < lines.index(f"model {MLP} …")
    assert " cpu 3 (" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[plugins.npu]\n[plugins.cpu]\n", ""),
        ("strict = true\n[plugins.npu]\noptional = true\n[plugins.cpu]\n", ""),
        ("[plugins.npu]\noptional = true\n[plugins.cpu]\n", "--strict"),
        ("[plugins.npu]\noptional = true\n[plugins.cpu]\n", "--device npu=cpu"),
        ("[plugins.npu]\noptional = true\n[plugins.cpu]\n", "--pin op=aten.addmm.*:plugin=npu"),
        ("", "--plugin npu --plugin cpu"),
    ],
)
def test_it_stops_a_lowering_that_needs_it_before_the_model_is_loaded(text, words):
    registry(text)
    done = invoke(f"lower {MLP} -o mlp.pte {words}")
    assert (done.exit_code, done.stdout) == (1, "")
    cure = 'to lower without it name the others, plugins=["cpu"] or --plugin cpu'
    assert done.stderr.splitlines()[-1] == f"{REFUSED}{cure}"
    assert "model" not in done.stderr
    assert not Path("mlp.pte").exists()


def test_it_plans_all_the_same():
    registry("[plugins.npu]\noptional = true\n[plugins.cpu]\n")
    assert [p["plugin"] for p in owners()] == ["npu", "npu"]
