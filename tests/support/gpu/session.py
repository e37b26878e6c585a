"""What a process of a lane's environment answers: what is lacking, its tests, their outcomes.

    python -m support.gpu.session plan LANE DEVICE
    python -m support.gpu.session run LANE DEVICE FILE
    python -m support.gpu.session versions LANE DISTRIBUTION ...

The answer is the last line of standard output, as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import pytest

from support.gpu.lanes import BY_NAME, Lane

# On the CPU, the tests of a lane that need no GPU.
SELECTED = {"cuda": "gpu", "cpu": "not gpu"}
# Without the options of pyproject.toml, which are for many processes.
RUNS = ("-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-q")


class Results:
    """A plugin of pytest that keeps the tests and the outcome of each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the names."""
        self.names = [item.nodeid for item in session.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test; that of its setup counts only if it isn't passed."""
        if report.when == "call" or not report.passed:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            reason = reason or (str(report.longrepr) if report.failed else "")
            self.tests[report.nodeid] = {
                "outcome": report.outcome,
                "seconds": round(report.duration, 3),
                "reason": reason,
                **dict(report.user_properties),
            }


def lacking(lane: Lane, device: str) -> str | None:
    """Return the first thing that this environment lacks for a lane; None if it has all."""
    for name in lane.imports:
        if find_spec(name.partition(".")[0]) is None:
            return f"{name.partition('.')[0]} is not installed"
    import torch

    if device == "cuda" and torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    for name in lane.imports:
        try:
            importlib.import_module(name)
        except Exception as error:
            line = str(error).strip().partition("\n")[0]
            return f"{name} can't be imported: {type(error).__name__}: {line}"
    if lane.backend:
        from executorch.runtime import Runtime

        if not Runtime.get().backend_registry.is_available(lane.backend):
            return f"this ExecuTorch's runtime has no {lane.backend}"
    return None


def tests(device: str, file: str, *options: str) -> Results:
    """Collect and run the tests of a file.

    Raises:
        RuntimeError: The file can't be collected.
    """
    results = Results()
    code = pytest.main([*RUNS, "-m", SELECTED[device], *options, file], plugins=[results])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{file}: {pytest.ExitCode(code).name}")
    return results


def plan(lane: Lane, device: str) -> dict[str, Any]:
    """Return why the tests of a lane are skipped here, or their names."""
    skip = lacking(lane, device)
    found = [] if skip else [tests(device, file, "--collect-only").names for file in lane.files]
    return {"skip": skip, "tests": [name for names in found for name in names]}


def versions(names: Sequence[str]) -> dict[str, str | None]:
    """Return the version of each distribution; None for one that isn't installed."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def answer(question: str, name: str, *rest: str) -> Any:
    """Answer a question about a lane."""
    if question == "versions":
        return versions(rest)
    device, *files = rest
    if question == "plan":
        return plan(BY_NAME[name], device)
    return tests(device, *files).tests


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = answer(*sys.argv[1:])
    sys.stdout.write(f"\n{json.dumps(found)}")
    sys.stdout.flush()
    # CUDA and Triton may crash while Python ends; the answer is written.
    os._exit(0)
