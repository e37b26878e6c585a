"""ExecuTorch's own tests from its wheel, run through etdev by a pytest of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
WHEEL = Path(importlib.util.find_spec("executorch").submodule_search_locations[0])


def files(folder: str) -> list[str]:
    """The test files in a folder of the wheel, without those in folders below it."""
    return sorted(f"{folder}/{path.name}" for path in (WHEEL / folder).glob("test_*.py"))


def run(plugin: str, tests: Sequence[str], outcomes: Path) -> list[dict[str, Any]]:
    """Run tests of the wheel with one of the pytest plugins beside this file.

    Args:
        plugin: `flows` or `partitioners`.
        tests: Files, folders and node ids below the wheel's `executorch` folder.
        outcomes: A file for what each test came to.

    Returns:
        A dict for each test and way of running it, as the plugin says.
    """
    # Their conftest.py is found from the folder that the plugin is for.
    root = WHEEL / "backends/test/suite" if plugin == "flows" else WHEEL
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
    environment = {
        # Options for this run, such as xdist's, are not for theirs.
        **{key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"},
        "PYTHONPATH": path,
        "ETDEV_OUTCOMES": str(outcomes),
        # OpenVINO computes float32 as float32 then, where it would round to bfloat16.
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
    }
    options = f"-q -W ignore -p suites.{plugin} -p no:cacheprovider -p no:xdist -c {os.devnull}"
    where = ["--rootdir", root, "--confcutdir", root, *(f"{WHEEL / test}" for test in tests)]
    command = [sys.executable, "-m", "pytest", *options.split(), *map(str, where)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # 1: tests failed, which is what the outcomes are about; 5: none was reported to pytest itself.
    assert done.returncode in (0, 1, 5), done.stdout[-5000:] + done.stderr[-5000:]
    return [json.loads(line) for line in outcomes.read_text("utf-8").splitlines()]
