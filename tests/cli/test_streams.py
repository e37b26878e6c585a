"""Streams: only results reach stdout, whoever else prints; Ctrl-C says what it interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from shell import MLP, TESTS, invoke, process

# Prints when it is imported, called and run, by Python and past it, and when Python ends.
LOUD = """\
import atexit
import os
import sys

import torch

print("imported")
os.write(1, b"by descriptor\\n")
os.system("echo by a shell")
atexit.register(print, "ended")


class Net(torch.nn.Module):
    def forward(self, x):
        print("traced", file=sys.__stdout__)
        return x + 1


def model():
    print("called")
    return Net(), (torch.ones(2),)
"""
WAITING = """\
import time

from etdev import Lowerer, hookimpl
from etdev.cli import lowerers


class Waiting:
    name = "waiting"

    @hookimpl
    def claim_nodes(self, program):
        print("waits", flush=True)
        time.sleep(60)


lowerers.lowerer = lambda *_, **__: Lowerer([Waiting()], listener=_[0])
main()
"""


@pytest.fixture
def loud(here) -> str:
    (here / "loud.py").write_text(LOUD)
    return "loud.py:model"


def test_stdout_is_json_whatever_a_model_prints(loud):
    done = process("plan", loud, "--plugin", "cpu", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "etdev.plan"
    said = done.stderr.splitlines()
    assert {"imported", "called", "ended"} <= set(said)


@pytest.mark.suite
def test_stdout_is_json_whatever_a_plugin_prints(here, monkeypatch):
    info = here / "etdev_loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: etdev-loud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[etdev]\nloud = loud_plugin:Plugin\n")
    (here / "loud_plugin.py").write_text(
        "from etdev import Probe, hookimpl\nprint('imported')\n\n\nclass Plugin:\n"
        "    @hookimpl\n    def claim_nodes(self, program):\n        print('asked')\n\n"
        "    @hookimpl\n    def probe(self):\n        print('probed')\n        return Probe()\n"
    )
    (here / "registry.toml").write_text("[plugins.loud]\n")
    path = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    done = process("plan", MLP, "--json")
    assert json.loads(done.stdout)["plugins"][0] == ["loud", "1.0"]
    assert {"imported", "asked"} <= set(done.stderr.splitlines())


def test_a_program_that_calls_main_has_its_stdout_back():
    code = "import contextlib\nwith contextlib.suppress(SystemExit): main()\nprint('mine')"
    done = process("plugins", "--json", code=code)
    assert done.stdout.endswith("}\nmine\n")


@pytest.mark.suite
def test_what_the_runtime_logs_is_shown_with_debug_only(mlp_pte):
    """In one process, as the runtime looks at the processor once."""
    code = "import contextlib\nfor argument in sys.argv[1:]:\n" + (
        "    with contextlib.suppress(SystemExit): main(argument.split())\n"
        "    print(argument, file=sys.stderr)"
    )
    quiet, plain = f"run {mlp_pte} -q", f"run {mlp_pte}"
    # Its backend logs when ExecuTorch is asked for it, through Python's stream.
    asked = f"lower {MLP} -o net.pte --plugin openvino --no-verify -q"
    done = process(quiet, plain, asked, code=code)
    progress = f"load PyTorch and ExecuTorch …\nrun {mlp_pte} …\n"
    assert done.stderr == f"{quiet}\n{progress}{plain}\n{asked}\n"


def test_the_streams_may_be_closed():
    done = process("plugins", code="sys.stdout = sys.stderr = None\nmain()")
    assert (done.returncode, done.stdout) == (0, "")


def test_verbose_says_every_step_and_quiet_none():
    for words, count in (("", 0), ("-v", 2), ("-q", 0)):
        done = invoke(f"lower {MLP} -o net.pte --plugin cpu --no-cache {words}")
        steps = [line for line in done.stderr.splitlines() if line.startswith("compiled ")]
        assert (len(steps), done.stderr == "") == (count, words == "-q")


@pytest.mark.suite
@pytest.mark.skipif(os.name == "nt", reason="signals are sent")
def test_ctrl_c_ends_with_130_and_names_stage_plugin_and_hook(here):
    code = f"import sys\nfrom etdev.cli.main import main\n{WAITING}"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "plan", MLP, "--plugin", "cpu", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        },
    )
    assert running.stderr
    while running.stderr.readline().strip() not in ("waits", ""):
        pass
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1] == "interrupted: plan, plugin waiting, hook claim_nodes"
