"""Run the tests that need a GPU, or say which would run, which would be skipped and why.

    python -m support.gpu --plan                    # on any machine
    python -m support.gpu build/gpu.json            # what `make gpu` calls
    python -m support.gpu --lane torch build/gpu.json
    python -m support.gpu --carry build/carried     # wheels for a bare machine with torch and CUDA

On such a machine: `pip install --no-deps --no-index build/carried/*.whl` beside torch and triton,
then the lane `torch`. `--device cpu` runs the tests of a lane that need no GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etdev_cuda import machine

from support.gpu.carried import carry
from support.gpu.lanes import BY_NAME, Lane

DISTRIBUTIONS = (
    *("torch", "executorch", "triton", "torch-tensorrt", "tensorrt"),
    *("torch-tensorrt-executorch-runtime", "etdev", "etdev-cuda", "etdev-trt"),
)
NO_GPU = "this machine has no NVIDIA GPU"


def main() -> int:
    """Return 1 if a test failed or none ran on a machine with a GPU, else 0."""
    parser = argparse.ArgumentParser(prog="support.gpu")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--carry", type=Path)
    parser.add_argument("--lane", choices=[*BY_NAME], action="append")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("file", type=Path, nargs="?")
    options = parser.parse_args()
    if options.carry:
        return carry(options.carry)
    lanes = [BY_NAME[name] for name in options.lane or BY_NAME]
    if options.plan:
        for lane in lanes:
            print(described(lane, lane.plan(options.device)))
        return 0
    return run(lanes, options.device, options.file)


def described(lane: Lane, plan: dict[str, Any]) -> str:
    """Return a plan as text: the lane, and its tests or why they are skipped."""
    if plan["skip"]:
        lines = [f"skip {file}: {plan['skip']}" for file in lane.files]
    else:
        lines = [f"run  {test}" for test in plan["tests"]]
    return "\n  ".join([f"{lane.name}: {lane.about}", *lines])


def run(lanes: Sequence[Lane], device: str, file: Path | None) -> int:
    """Make the environments, run what can run, and write the outcomes with all versions."""
    found = device == "cpu" or machine.gpus() > 0
    document: dict[str, Any] = {"devices": devices(), "python": platform.python_version()}
    document["lanes"] = {lane.name: outcome(lane, device, found) for lane in lanes}
    outcomes = []
    for name, lane in document["lanes"].items():
        tests = [test["outcome"] for test in lane["tests"].values()]
        outcomes += tests
        counts = ", ".join(f"{tests.count(o)} {o}" for o in sorted({*tests}))
        print(f"{name}: {lane['skip'] or counts}")
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return int("failed" in outcomes or (found and "passed" not in outcomes))


def outcome(lane: Lane, device: str, found: bool) -> dict[str, Any]:
    """Return why a lane is skipped, or the outcome of each of its tests."""
    skip = lane.make() or lane.plan(device)["skip"] if found else NO_GPU
    if skip:
        return {"skip": skip, "tests": {}}
    return {"skip": None, "versions": versions(lane), "tests": lane.run(device)}


def versions(lane: Lane) -> dict[str, str | None]:
    """Return the versions of a lane's distributions; None for one that isn't installed."""
    answer: dict[str, str | None] = lane.ask("versions", *DISTRIBUTIONS)
    return answer


def devices() -> list[str]:
    """Return the GPUs with their drivers and memory, as nvidia-smi lists them."""
    query = "--query-gpu=name,compute_cap,driver_version,memory.total"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
