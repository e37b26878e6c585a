"""A target of the registry, behind a real OpenSSH server on the loopback address."""

from __future__ import annotations

import platform
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.runners import OnTarget, open_runner
from support.models import nets

from etdev.errors import RunError
from etdev.schema.target import Target

MODULE, INPUTS = nets.mlp()
QUICK = {"warmup": 1, "repetitions": 4, "seconds": 0.05, "warmup_s": 0.001}
HERE = f"{platform.machine()}-linux-gnu"


@pytest.fixture
def box(ssh):
    if not shutil.which(f"{HERE}-g++"):
        pytest.skip(f"{HERE}-g++ is not installed")
    package = Path(find_spec("executorch").submodule_search_locations[0])
    runner = OnTarget(Target(HERE, on="ssh:box", executorch=str(package)))
    yield runner
    runner.close()


def test_programs_are_timed_there_in_new_processes_and_leave_nothing(ssh, box, mlp_pte):
    assert box.fingerprint()["processor"].startswith(platform.machine())
    request = Request(mlp_pte, (INPUTS,), outputs=True, **QUICK)
    for _ in range(2):
        result = box.run(request)
        assert isinstance(result, Result), result
        torch.testing.assert_close(result.outputs[0][0], MODULE(*INPUTS), atol=1e-5, rtol=1e-5)
        assert len(result.times_ns[0]) == 4
    late = box.run(Request(mlp_pte, (INPUTS,), timeout_s=0.0, **QUICK))
    assert isinstance(late, Failure)
    box.close()
    assert list(ssh.temporary.iterdir()) == []
    ssh.know("other")
    with pytest.raises(RunError, match="Host key verification failed") as lost:
        box.run(request)
    assert (lost.value.who, lost.value.cure.startswith("try ssh ")) == ("box", True)


def test_an_emulator_is_refused():
    with pytest.raises(RunError, match="is emulated, and its times mean nothing") as caught:
        open_runner(Target("aarch64-linux-gnu"))
    assert 'on = "ssh:HOST"' in caught.value.cure
