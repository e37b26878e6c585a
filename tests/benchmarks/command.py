"""Whole processes: from a model to a verified file, beside a script of plain ExecuTorch.

PYTHONPATH=tests python -m benchmarks.command [--rounds 3]

What a new user waits for, by the clock, imports included. The script writes the file and verifies
nothing. The processor seconds leave out the process that runs the program for etdev, which loads
its runtime on another core meanwhile.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks import record

# Of the script's time.
BOUND = 1.2
NET = """
import torch

def model():
    layers = [torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(2, 16),)
"""
PLAIN = """
import torch, net
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

program = torch.export.export(*net.model())
edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
open("plain.pte", "wb").write(edge.to_executorch().buffer)
"""
SIDES = {
    "plain ExecuTorch": ("-c", PLAIN),
    "etdev lower": (
        *("-m", "etdev", "lower", "net.py:model", "-o", "net.pte"),
        *("--plugin", "cpu", "--no-cache", "--force"),
    ),
}


def took(words: tuple[str, ...], folder: Path) -> record.Took:
    """The time of a process and of those that it starts."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=True,
                   capture_output=True)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return record.Took(cpu, time.perf_counter() - wall)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description="Time whole processes.")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "net.py").write_text(NET)
        sides = {name: partial(took, words, Path(place)) for name, words in SIDES.items()}
        record.in_turn("to warm up", sides, 1)
        runs = record.in_turn("whole processes", sides, rounds)
    cpu = {name: record.median(own) for name, own in runs.items()}
    wall = {name: sorted(t.wall_s for t in own)[rounds // 2] for name, own in runs.items()}
    plain, ours = wall.values()
    bars = [record.Bar("etdev lower, verified, of plain ExecuTorch's time", ours / plain, BOUND)]
    rows = [{"": name, "processor s": cpu[name], "wall s": wall[name]} for name in SIDES]
    record.save("command", {"sides": rows}, bars)
    record.columns("from a model to a file", rows)
    record.show("command", bars)


if __name__ == "__main__":
    main()
