"""`etdev reduce` on the command line: each kind of failure, and what is written of it."""

from __future__ import annotations

import json
import os

import pytest
from etdev_reduce.search import trying
from support.shell import TESTS, error_of, invoke, succeeds
from support.shell.distributions import put

NET = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4)
        with torch.no_grad():
            self.middle.weight[3, 4] = 0.6789

    def forward(self, x):
        return self.last(self.middle(self.first(x).relu()).tanh())

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("count", torch.full((4,), 5.0))

    def forward(self, x):
        x = self.first(x).relu()
        self.count.add_(2)
        return self.last(x), self.count * x

def net():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 8),)

def counter():
    torch.manual_seed(0)
    return Counter().eval(), (torch.randn(4, 4),)
"""
FAULTY = "--partitioner support.toys.faulty:"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with a model, from where scripts import what the tests do."""
    path = os.pathsep.join([str(tmp_path), str(TESTS)])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net.py").write_text(NET)
    yield tmp_path
    # The next one imports from another folder.
    trying().close()


def reduced(words):
    """Return the document of a reduction, whose script has failed in a fresh process."""
    return json.loads(succeeds(f"reduce {words} -o fault --no-cache --json"))


@pytest.mark.suite
def test_a_hang_at_run_becomes_a_script_that_hangs(folder):
    known = reduced(f"net.py:net {FAULTY}Hanging --hang 10s")
    assert known["failure"] == "hang while it is run: no answer in 10 s"
    assert known["title"] == "Hanging: hang of aten.tanh.default"
    assert "faulthandler.dump_traceback_later" in (folder / "fault/repro.py").read_text()


@pytest.mark.suite
def test_a_crash_at_run_keeps_its_signal(folder):
    known = reduced(f"net.py:net {FAULTY}Crashing")
    assert known["failure"] == "crash while it is run: SIGSEGV"
    assert known["title"] == "Crashing: crash of aten.tanh.default"
    assert "**Actual:** The process ends with SIGSEGV." in (folder / "fault/report.md").read_text()


@pytest.mark.suite
def test_a_slow_op_is_found_only_if_it_is_asked_for(folder):
    known = reduced(f"net.py:net {FAULTY}Slow --slow 10")
    assert known["title"] == "Slow: slowness of aten.tanh.default"
    done = invoke(f"reduce net.py:net {FAULTY}Slow -o other")
    assert "nothing fails" in error_of(done.stderr)


@pytest.mark.suite
def test_weights_that_matter_are_written_only_if_the_user_says_so(folder):
    done = invoke(f"reduce net.py:net {FAULTY}Weighted -o fault --no-cache")
    assert error_of(done.stderr).endswith("give --keep-weights to write them to model.pt2")
    assert not [*folder.glob("fault/*")]
    known = reduced(f"net.py:net {FAULTY}Weighted --keep-weights")
    assert known["title"] == "Weighted: wrong values of aten.linear.default"
    assert (folder / "fault/model.pt2").exists()
    # A second reduction replaces what the first one wrote.
    reduced(f"net.py:net {FAULTY}Crashing")
    assert sorted(path.name for path in folder.glob("fault/*")) == ["report.md", "repro.py"]


@pytest.mark.suite
def test_a_state_is_part_of_the_script(folder):
    """ExecuTorch's own flow loses the first value of a buffer that the method writes to."""
    known = reduced("net.py:counter --plugin portable")
    assert known["failure"].startswith("wrong values while it is run: in call 0, output 0")
    text = (folder / "fault/repro.py").read_text()
    assert "register_buffer" in text
    assert "linear" not in text


NPU = """\
from etdev import Claim, hookimpl

class Npu:
    @hookimpl
    def claim_nodes(self, program):
        nodes = program.graph.nodes
        if any("tanh" in node.name for node in nodes):
            return Claim("NpuBackend", ["nowhere"])
"""


@pytest.mark.suite
def test_a_promise_that_a_plugin_breaks_is_an_error_of_etdevs_flow(folder):
    put(folder, "a-npu", NPU, {"etdev": {"npu": "{module}:Npu"}})
    known = reduced("net.py:net --plugin npu")
    assert known["title"] == "etdev with npu: error of aten.tanh.default"
    assert known["script"] == "fault/repro_etdev.py"
    assert "npu" in known["failure"]


TWICE = """\
from etdev import hookimpl

class Twice:
    @hookimpl
    def claim_nodes(self, program):
        nodes = [node for node in program.graph.nodes if "tanh" in node.name]
        self.sizes.update(node.meta["val"].shape for node in nodes)
        if len(self.sizes) > 1:
            raise ValueError("tanh in two sizes")

    sizes = set()
"""
METHODS = """

def methods():
    layers = {"first": (nn.Tanh(), 2), "second": (nn.ReLU(), 2), "third": (nn.Tanh(), 3)}
    return {name: (layer, (torch.ones(size),)) for name, (layer, size) in layers.items()}
"""


@pytest.mark.suite
def test_methods_that_fail_in_one_file_alone_are_reduced_together(folder):
    put(folder, "twice", TWICE, {"etdev": {"twice": "{module}:Twice"}})
    (folder / "net.py").write_text(NET + METHODS)
    known = reduced("net.py:methods --plugin twice")
    assert known["title"] == "etdev with twice: error of aten.tanh.default"
    assert known["nodes"] == [3, 2]
    assert "ValueError: tanh in two sizes" in known["failure"]
    text = (folder / "fault/repro_etdev.py").read_text()
    assert '"first": FirstModel().eval()' in text
    assert "Second" not in text


@pytest.mark.suite
@pytest.mark.slow
def test_a_raw_error_of_executorchs_is_kept(folder):
    text = NET.replace(".tanh()", ".sort().values")
    (folder / "net.py").write_text(text)
    known = reduced("net.py:net --plugin portable")
    assert known["title"] == "Portable kernels: error of aten.sort.default"


SETTING = """\
from attrs import frozen
from etdev import hookimpl

@frozen
class Setting:
    op: str = "nothing"

    @hookimpl
    def claim_nodes(self, program):
        if any(self.op in node.name for node in program.graph.nodes):
            raise ValueError(f"no {self.op}")
"""
REGISTRY = """\
[plugins.setting.options]
op = "tanh"
[plugins.portable]
[[pin]]
op = "aten.relu.*"
plugin = "portable"
"""


@pytest.mark.suite
def test_a_script_has_the_settings_of_the_users_registry(folder):
    put(folder, "setting", SETTING, {"etdev": {"setting": "{module}:Setting"}})
    (folder / "registry.toml").write_text(REGISTRY)
    known = reduced("net.py:net")
    assert known["title"] == "etdev with setting: error of aten.tanh.default"
    text = (folder / "fault/repro_etdev.py").read_text()
    assert '"setting": {"options": {"op": "tanh"}}' in text
    assert '"pin": [{"plugin": "portable", "op": "aten.relu.*"}]' in text


SHARED = """

class Adds(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        self.held.sum.add_(x.tanh())
        return self.held.sum * 2

class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(2))

def shared():
    held = Held()
    return {f"of_{size}": (Adds(held), (torch.ones(size),)) for size in (1, 2)}
"""
UPDATED = "if program.graph_signature.buffers_to_mutate:\n            self.sizes.update"


@pytest.mark.suite
def test_methods_of_a_script_share_the_state_that_they_share_in_the_model(folder):
    plugin = TWICE.replace("self.sizes.update", UPDATED)
    put(folder, "twice", plugin, {"etdev": {"twice": "{module}:Twice"}})
    (folder / "net.py").write_text(NET + SHARED)
    known = reduced("net.py:shared --plugin twice")
    assert "ValueError: tanh in two sizes" in known["failure"]
    # ExecuTorch's flow would give each method a state of its own.
    assert [*known["flows"]] == ["etdev with twice"]
    text = (folder / "fault/repro_etdev.py").read_text()
    assert text.count(", shared_0)") == 2
