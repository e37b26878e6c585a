"""Targets behind any command: templates, a full disk, a command that isn't there."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from pathlib import Path

import psutil
import pytest
from etdev_tune.exchange import Request, Result
from etdev_tune.runners import open_runner
from etdev_tune.runners.commands import command
from support.models import nets

from etdev.errors import RunError

_, INPUTS = nets.mlp()


def test_a_program_runs_behind_a_command(python, mlp_pte, tmp_path, monkeypatch) -> None:
    # A command names no Python, so it is the one that the target finds.
    monkeypatch.setenv("PATH", f"{Path(python).parent}:/usr/bin:/bin")
    folder = tmp_path / "a folder"
    folder.mkdir()
    runner = open_runner(f"env TMPDIR={shlex.quote(str(folder))} sh -c {{quoted}}")
    result = runner.run(Request(mlp_pte, (INPUTS,)))
    assert isinstance(result, Result)
    assert list(folder.iterdir())
    runner.close()
    assert list(folder.iterdir()) == []


def test_a_template_gets_the_words_of_its_python() -> None:
    words = {
        "docker exec -i box {command}": ["docker", "exec", "-i", "box", "python3", "-c", "a b"],
        "adb shell {quoted}": ["adb", "shell", "python3 -c 'a b'"],
        "box /opt/python {arguments}": ["box", "/opt/python", "-c", "a b"],
    }
    for template, expected in words.items():
        assert command(template, ["-c", "a b"]) == expected


@pytest.mark.suite
def test_a_full_disk_is_named_and_leaves_nothing(python, mlp_pte, tmp_path) -> None:
    # A process that may write no file beyond a size is told what a full disk tells it.
    big = tmp_path / "big.pte"
    big.write_bytes(mlp_pte.read_bytes() + bytes(1 << 20))
    limited = f'TMPDIR={tmp_path}/there; export TMPDIR; ulimit -f 200; exec "$@"'
    (tmp_path / "there").mkdir()
    runner = open_runner(f"bash -c {shlex.quote(limited)} bash {python} {{arguments}}")
    assert isinstance(runner.run(Request(mlp_pte, (INPUTS,))), Result)
    with pytest.raises(
        RunError, match=r"running big.pte: .*OSError: \[Errno 27\] File too large"
    ) as full:
        runner.run(Request(big, (INPUTS,)))
    assert "run it again" in full.value.cure
    assert isinstance(runner.run(Request(mlp_pte, (INPUTS,))), Result)
    runner.close()
    assert list((tmp_path / "there").iterdir()) == []


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match="No such file or directory: 'no-such-command'") as missing:
        open_runner("no-such-command {command}").fingerprint()
    assert missing.value.cure.endswith("starts a Python with ExecuTorch: no-such-command python3")


def test_a_command_that_ends_is_named() -> None:
    with pytest.raises(RunError, match=r"ended with exit code 1 \(no such box\)") as ended:
        open_runner("sh -c 'echo no such box >&2; exit 1' {command}").fingerprint()
    assert ended.value.cure.startswith("see that this starts a Python with ExecuTorch: sh -c")


@pytest.mark.parametrize("text", ["", "docker exec box", "{quoted}", "a {command} {quoted}", "a '"])
def test_what_is_not_a_runner_is_refused(text: str) -> None:
    with pytest.raises(RunError) as refused:
        open_runner(text)
    assert "docker exec -i box {command}" in refused.value.cure


def workers() -> list[psutil.Process]:
    """The workers that this process started."""
    return [child for child in psutil.Process().children() if "-u" in child.cmdline()]


@pytest.fixture
def behind(python, tmp_path):
    """A target behind a command, and the worker's process."""
    folder = tmp_path / "there"
    folder.mkdir()
    runner = open_runner(f"env TMPDIR={folder} {python} {{arguments}}")
    before = workers()
    runner.fingerprint()
    (worker,) = [each for each in workers() if each not in before]
    yield runner, worker
    runner.close()


ENDLESS = {"repetitions": 10**9, "seconds": 60}


@pytest.mark.suite
def test_a_lost_connection_is_named_and_the_next_run_connects_anew(behind, mlp_pte) -> None:
    runner, worker = behind
    runs = []

    def kill() -> None:
        runs.extend(worker.children())
        worker.kill()

    threading.Timer(1.0, kill).start()
    request = Request(mlp_pte, (INPUTS,), repetitions=10**9, seconds=3)
    with pytest.raises(RunError, match=r"lost while running .*died of SIGKILL") as lost:
        runner.run(request)
    assert "run it again" in lost.value.cure
    assert isinstance(runner.run(Request(mlp_pte, (INPUTS,))), Result)
    # Its result has no reader, so that the run there ends, too.
    assert [len(group) for group in psutil.wait_procs(runs, timeout=30)] == [1, 0]


@pytest.mark.suite
def test_a_silent_target_is_lost(behind, mlp_pte, monkeypatch) -> None:
    runner, worker = behind
    assert isinstance(runner.run(Request(mlp_pte, (INPUTS,))), Result)
    worker.suspend()
    monkeypatch.setattr("etdev_tune.runners.target.GRACE_S", 0.5)
    with pytest.raises(RunError, match=r"lost while running .*took longer than"):
        runner.run(Request(mlp_pte, (INPUTS,), timeout_s=0.5))
    assert not worker.is_running()


@pytest.mark.suite
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_nothing(behind, mlp_pte, tmp_path) -> None:
    runner, worker = behind
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        runner.run(Request(mlp_pte, (INPUTS,), **ENDLESS))
    assert not worker.is_running()
    assert list((tmp_path / "there").iterdir()) == []
