"""Run the tests that need a GPU, and write their results with the device and all versions.

`make gpu` calls it. Without a GPU every test is skipped with its reason, which is written, too.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

DISTRIBUTIONS = (
    *("torch", "executorch", "triton", "torch-tensorrt", "tensorrt"),
    *("torch-tensorrt-executorch-runtime", "etdev", "etdev-cuda", "etdev-trt"),
)
# pytest's code for no test at all.
NOTHING = 5


class Results:
    """A plugin of pytest that keeps the outcome of each test."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test; that of its setup counts only if it isn't passed."""
        if report.when == "call" or not report.passed:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            reason = reason or (str(report.longrepr) if report.failed else "")
            self.tests[report.nodeid] = {
                "outcome": report.outcome,
                "seconds": round(report.duration, 3),
                "reason": reason,
            }


def versions() -> dict[str, str | None]:
    """Return the version of each distribution that matters; None for one that isn't installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def devices() -> list[dict[str, Any]]:
    """Return the GPUs that torch sees."""
    import torch

    properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [
        {"name": p.name, "capability": f"{p.major}.{p.minor}", "memory_bytes": p.total_memory}
        for p in properties
    ]


def main(file: Path, arguments: list[str]) -> int:
    """Run the tests, write the file, and return pytest's exit code."""
    results = Results()
    code = pytest.main(["-m", "gpu", "-n", "0", *arguments], plugins=[results])
    document = {"devices": devices(), "versions": versions(), "tests": results.tests}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    outcomes = [test["outcome"] for test in results.tests.values()]
    print(f"{file}: {', '.join(f'{outcomes.count(o)} {o}' for o in sorted({*outcomes}))}")
    return NOTHING if not outcomes else int(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
