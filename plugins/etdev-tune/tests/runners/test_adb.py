"""A device behind adb. Nothing here has one, so the adb is a fake: a shell on this machine."""

from __future__ import annotations

import os

import pytest
from etdev_tune.exchange import Request, Result
from etdev_tune.runners import open_runner
from support.models import nets

from etdev.errors import RunError

_, INPUTS = nets.mlp()
# As adb does: the device that -s names, and what follows `shell -T` is for the device's shell.
FAKE = """#!/bin/sh
if [ "$1" = -s ]; then
    [ "$2" = fake-5554 ] || { echo "error: device '$2' not found" >&2; exit 1; }
    shift 2
fi
[ "$1 $2" = "shell -T" ] || exit 2
shift 2
exec sh -c "$*"
"""


@pytest.fixture(autouse=True)
def _fake_adb(tmp_path, monkeypatch) -> None:
    (tmp_path / "adb").write_text(FAKE)
    (tmp_path / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.suite
def test_a_program_runs_on_a_device(python, mlp_pte) -> None:
    runner = open_runner(f"adb:fake-5554:{python}")
    result = runner.run(Request(mlp_pte, (INPUTS,), outputs=True))
    runner.close()
    assert isinstance(result, Result)
    assert len(result.outputs) == 1


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(RunError, match=r"device '192\.168\.0\.7:5555' not found") as missing:
        open_runner("adb:192.168.0.7:5555").fingerprint()
    assert missing.value.who == "adb:192.168.0.7:5555"


def test_a_device_without_python_is_named() -> None:
    with pytest.raises(
        RunError, match=r"while connecting: .*\(.*/no/python: .*not found\)"
    ) as missing:
        open_runner("adb::/no/python").fingerprint()
    started = "see that this starts a Python with ExecuTorch: adb shell -T /no/python"
    assert missing.value.cure == started


def test_an_option_is_not_a_serial_number() -> None:
    with pytest.raises(RunError, match="error: device '-H evil' not found"):
        open_runner("adb:-H evil").fingerprint()
