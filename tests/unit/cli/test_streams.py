"""Streams: only results reach stdout, whoever else prints; Ctrl-C says what it interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from support.shell import MLP, TESTS, error_of, invoke, process, succeeds
from support.shell.distributions import put
from support.shell.sources import BROKEN

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


# Several commands in one process, as importing torch takes most of the time; what the last one
# leaves is that of the process.
COMMANDS = """\
import os
*before, last = sys.argv[1:]
for line in before:
    folder, *words = line.split()
    os.chdir(folder)
    try:
        main(words)
    except SystemExit as done:
        for stream in (sys.stdout, sys.stderr):
            print(f"exit {done.code}", file=stream, flush=True)
folder, *words = last.split()
os.chdir(folder)
main(words)
"""
PARTITIONER = "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner"


@pytest.fixture(scope="module")
def told(tmp_path_factory, mlp_pte):
    """What four commands write to stdout and to stderr, and how the last one ends."""
    adapted, models = (tmp_path_factory.mktemp(name) for name in ("adapted", "models"))
    (adapted / "registry.toml").write_text(f'[plugins.mine]\npartitioner = "{PARTITIONER}"\n')
    (models / "broken.py").write_text(BROKEN)
    (models / "loud.py").write_text(LOUD)
    done = process(
        f"{adapted} plugins --json",
        f"{models} plan broken.py:badly_shaped --plugin cpu",
        f"{models} run {mlp_pte} --check {MLP}",
        f"{models} plan loud.py:model --plugin cpu --json",
        code=COMMANDS,
    )
    parts = [re.split(r"^exit (\d+)\n", text, flags=re.M) for text in (done.stdout, done.stderr)]
    assert parts[0][1::2] == parts[1][1::2] == ["0", "1", "0"]
    named = ("plugins", "fails", "runs", "prints")
    texts = dict(zip(named, zip(*(part[::2] for part in parts), strict=True), strict=True))
    return texts, done.returncode


def test_what_the_import_of_a_partitioner_logs_and_warns_of_is_not_shown(told):
    stdout, stderr = told[0]["plugins"]
    mine = json.loads(stdout)["plugins"][0]
    assert (mine["status"], mine["ready"]) == ("not probed", False)
    # A busy machine may have to wait for it.
    assert [row for row in stderr.splitlines() if not row.startswith("waiting for")] == []


def test_a_process_keeps_results_progress_and_errors_apart(told):
    # torch logs a traceback of what its export raises.
    stdout, failed = told[0]["fails"]
    assert stdout == ""
    assert error_of(failed).startswith(
        "forward: forward() fails in eager PyTorch with these inputs: RuntimeError: "
    )
    assert failed.startswith("load PyTorch and ExecuTorch …\n")
    stdout, ran = told[0]["runs"]
    stages = [line.split()[0] for line in ran.splitlines() if line.endswith("…")]
    assert stages == ["load", "model", "run", "verify"]
    output, latency, _ = stdout.splitlines()
    assert output.startswith("output 0: float32 (2, 4), max error ")
    assert latency.startswith("latency: ")


def test_stdout_is_json_whatever_a_model_prints(told):
    (stdout, stderr), code = told[0]["prints"], told[1]
    assert code == 0
    assert json.loads(stdout)["schema"] == "etdev.plan"
    assert {"imported", "called", "ended"} <= set(stderr.splitlines())


def test_nothing_below_python_writes_to_stdout(capfd):
    # What the command prints is captured apart from the file descriptor.
    succeeds(f"lower {MLP} --plugin cpu -o net.pte")
    succeeds("run net.pte")
    assert capfd.readouterr().out == ""


@pytest.mark.suite
def test_stdout_is_json_whatever_a_plugin_prints(here, monkeypatch):
    source = (
        "from etdev import Probe, hookimpl\nprint('imported')\n\n\nclass Plugin:\n"
        "    @hookimpl\n    def claim_nodes(self, program):\n        print('asked')\n\n"
        "    @hookimpl\n    def probe(self):\n        print('probed')\n        return Probe()\n"
    )
    put(here, "etdev-loud", source, {"etdev": {"loud": "{module}:Plugin"}})
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
