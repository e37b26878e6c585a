"""A target behind a real OpenSSH server on the loopback address."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
import torch
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.runners import open_runner, target
from support.models import nets

from etdev.errors import RunError

MODULE, INPUTS = nets.mlp()


def clients() -> list[psutil.Process]:
    """The processes of ssh that this one started."""
    return [child for child in psutil.Process().children() if child.name() == "ssh"]


def refusal(name: str) -> RunError:
    runner = open_runner(name)
    with pytest.raises(RunError) as refused:
        runner.fingerprint()
    runner.close()
    assert clients() == []
    assert (refused.value.who, bool(refused.value.cure)) == (name, True)
    return refused.value


def test_a_program_runs_there_and_leaves_nothing(ssh, python, mlp_pte, tmp_path) -> None:
    # Names never meet a shell.
    hostile = tmp_path / "a b;touch $(HACKED)'\"\\.pte"
    hostile.write_bytes(mlp_pte.read_bytes())
    runner = open_runner(f"ssh:box:{python}")
    assert "XnnpackBackend" in runner.fingerprint()["backends"]
    for _ in range(2):
        result = runner.run(Request(hostile, (INPUTS,), outputs=True))
        assert isinstance(result, Result)
        torch.testing.assert_close(result.outputs[0][0], MODULE(*INPUTS), atol=1e-5, rtol=1e-5)
        assert len(result.times_ns[0]) == 20
    (folder,) = ssh.temporary.iterdir()
    # The program once, the inputs once, and the run's own log.
    assert len([file for file in folder.iterdir() if len(file.name) == 32]) == 2
    runner.close()
    _emptied(ssh.temporary)


def test_a_slow_target_is_a_hang_and_a_silent_one_is_lost(
    ssh, python, mlp_pte, monkeypatch
) -> None:
    runner = open_runner(f"ssh:box:{python}")
    slow = Request(mlp_pte, (INPUTS,), repetitions=10**9, seconds=60, timeout_s=0.5)
    assert runner.run(slow) == Failure("hang", "took longer than 0.5 s")
    (client,) = clients()
    client.suspend()
    monkeypatch.setattr("etdev_tune.runners.target.GRACE_S", 0.5)
    with pytest.raises(RunError, match=r"lost while running .*took longer than 0.5 s"):
        runner.run(slow)
    assert clients() == []
    _emptied(ssh.temporary)


def test_a_wrong_host_key_is_named(ssh) -> None:
    ssh.know("other")
    error = refusal("ssh:box")
    assert "Host key verification failed" in error.what
    assert "ssh -T" in error.cure
    assert error.cure.endswith("box python3")


def test_a_missing_python_is_named(ssh) -> None:
    error = refusal("ssh:box:/no/such python;true")
    assert "/no/such python;true: " in error.what
    assert "/no/such python;true" in error.cure


def test_a_python_without_executorch_is_named(ssh, tmp_path, python) -> None:
    # Isolated from the packages that this one has.
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {python} -S -E "$@"\n')
    bare.chmod(0o755)
    error = refusal(f"ssh:box:{bare}")
    assert "ended with exit code 1 (ModuleNotFoundError: No module named" in error.what
    assert error.cure.startswith("see that this starts a Python with ExecuTorch: ssh")


def test_a_name_without_a_host_is_refused() -> None:
    with pytest.raises(RunError, match="names no host"):
        open_runner("ssh:")


def test_an_option_is_not_a_host(ssh, tmp_path) -> None:
    assert (
        "hostname contains invalid characters"
        in refusal(f"ssh:-oProxyCommand=touch {tmp_path}/x").what
    )
    assert not (tmp_path / "x").exists()


def test_a_host_that_does_not_answer_is_given_up(ssh, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(target, "START_S", 0.5)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    assert "connecting: the process took longer" in refusal(f"ssh:box:{silent}").what


def _emptied(folder: Path) -> None:
    """Wait until the worker, which outlives our end of the connection, has tidied up."""
    for _ in range(100):
        if not list(folder.iterdir()):
            return
        time.sleep(0.1)
    raise AssertionError(list(folder.iterdir()))
