"""The tests marked `versions` with the other torch-tensorrt: one process can hold only one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.toys import torch_tensorrt as versions

OTHERS = [version for version in versions.VERSIONS if version != versions.VERSION]


@pytest.mark.suite
@pytest.mark.slow
@pytest.mark.skipif("TORCH_TENSORRT" in os.environ, reason="this is the other one")
@pytest.mark.parametrize(
    "files", [("test_engines.py", "test_labels.py"), pytest.param((), marks=pytest.mark.suite)]
)
@pytest.mark.parametrize("version", OTHERS)
def test_another_torch_tensorrt_passes_the_same_tests(version, files):
    if reason := versions.why_missing(version):
        pytest.skip(reason)
    here = Path(__file__).parent
    paths = [str(here / file) for file in files] or [str(here)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "versions", *paths],
        cwd=here.parents[2],
        env={**os.environ, "TORCH_TENSORRT": version},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert "passed" in done.stdout
