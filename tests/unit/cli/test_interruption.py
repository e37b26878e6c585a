"""Ctrl-C while torch is imported, and the status with which a process leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

ETDEV = [sys.executable, "-m", "etdev"]
NET = """
import atexit
import torch

atexit.register(print, "the model's own last word")


def model():
    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent")
def test_ctrl_c_during_an_import_ends_with_130(here):
    (here / "net.py").write_text(NET)
    words = ["lower", "net.py:model", "-o", "net.pte", "--plugin", "cpu"]
    with subprocess.Popen([*ETDEV, *words], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        assert running.stderr.readline() == "load PyTorch and ExecuTorch …\n"
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130
    assert rest == "interrupted: load PyTorch and ExecuTorch\n"
    assert [path.name for path in here.iterdir()] == ["net.py"]


def test_a_process_leaves_with_the_status_of_its_command(here):
    (here / "net.py").write_text(NET)
    commands = {"plan net.py:model --plugin cpu --json": 0, "inspect gone.pte": 1, "lower": 2}
    for line, status in commands.items():
        done = subprocess.run([*ETDEV, *line.split()], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        # Exit functions run, and all that was printed arrives.
        assert ("own last word" in done.stdout + done.stderr) == (status == 0)
        assert done.stdout.endswith("}\n") == (status == 0)
