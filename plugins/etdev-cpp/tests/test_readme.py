"""The README's way from an installation to a program on a board; a loopback host is the board."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from etdev_cpp import runner
from support.decoders import SIZES
from support.documents import blocks

README = Path(__file__).parents[1] / "README.md"
BOARD = "pi@raspberrypi.local"
HERE = f"{platform.machine()}-linux-gnu"
# They prepare a machine, which the tests' own is already.
PREPARING = ("pip install", "sudo apt install", "ssh-copy-id")


def of_section(title):
    """The blocks of a section."""
    lines = README.read_text().splitlines()
    start = lines.index(f"## {title}") + 1
    later = (n for n in range(start, len(lines)) if lines[n].startswith("## "))
    end = next(later, len(lines))
    return [block for block in blocks(README) if start < block.line <= end]


def run(line):
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    said = re.search("# (?:ends with|says): (.*)", line)
    assert not said or said[1] in done.stdout
    return done.stdout


def written(block, folder):
    text = block.text.replace("aarch64-linux-gnu", HERE)
    package = find_spec("executorch").submodule_search_locations[0]
    text = text.replace("memory =", f'executorch = "{package}"\nmemory =')
    (folder / block.file).write_text(text)


@pytest.fixture
def board(ssh, tmp_path, monkeypatch):
    """A folder, and a host that has the board's name and this machine's processor."""
    if not shutil.which(f"{HERE}-g++"):
        pytest.skip(f"{HERE}-g++ is not installed")
    config = ssh.folder / "config"
    before = config.read_text()
    config.write_text(before.replace("Host box", "Host box raspberrypi.local"))
    for name in ("ssh", "scp"):
        # Who logs in is the user of the tests.
        script = tmp_path / name
        program = shutil.which(name, path="/usr/bin:/bin")
        script.write_text(
            "#!/bin/bash\n"
            f'exec {program} -F {config} "${{@/#pi@raspberrypi.local/raspberrypi.local}}"\n'
        )
        script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{tmp_path}", prepend=":")
    yield tmp_path
    config.write_text(before)
    runner._runner_at.cache_clear()


@pytest.mark.suite
def test_the_commands_lead_from_a_model_to_its_values_on_the_board(board, ssh):
    told = []
    for block in of_section("A board in ten minutes"):
        if block.file:
            written(block, board)
        for line in block.text.splitlines() if block.language == "sh" else ():
            if not line.startswith(PREPARING):
                # On a board it is the home of the user that logs in.
                line = re.sub(r":net$|cd net ", lambda m: m[0].replace("net", f"{board}/net"), line)
                told.append(run(line))
    _, ran, checked, *_, values = told
    assert "latency" in ran
    assert re.search(r"glibc 2\.\d+", checked)
    assert values.startswith("1.forward output [1, 10]: ")
    assert list(ssh.temporary.iterdir()) == []


@pytest.mark.suite
@pytest.mark.usefixtures("compiles")
def test_the_commands_of_its_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:", prepend=":")
    for block in of_section("A board in ten minutes"):
        if block.file == "net.py":
            written(block, tmp_path)
    # The vendor's library.
    run("c++ -shared -fPIC -x c++ /dev/null -o libnpu_backend.so")
    (first, *_) = blocks(README, "sh")
    for line in first.text.splitlines():
        run(line)


@pytest.mark.suite
@pytest.mark.usefixtures("compiles")
def test_the_commands_of_a_decoders_loop(tmp_path, monkeypatch):
    pytest.importorskip("etdev_llm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:", prepend=":")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    (block,) = of_section("The project")
    *_, found = map(run, block.text.splitlines())
    (same,) = re.findall(r"`(etdev generate chat.pte [^`]+)`", README.read_text())
    assert run(same).splitlines()[0] == found.strip()
