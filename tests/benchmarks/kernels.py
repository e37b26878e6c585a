"""Speeds of kinds of kernels, for the table in etdev/schema/cost.py.

PYTHONPATH=tests OMP_NUM_THREADS=1 python -m benchmarks.kernels

Prints operations and bytes per second of XNNPACK's delegates, of ExecuTorch's optimised kernels and
of its portable ones, by processor time, and what the table has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.latency import Side
from support.models.small import Function
from torch import Tensor, nn

from etdev import Lowerer
from etdev.schema import cost

ROUNDS = 7
WIDE = torch.randn(64, 512)
LONG = torch.randn(1 << 20)
IMAGE = torch.randn(1, 8, 32, 32)
# Op, plugins, and the kind whose operations or bytes it shows.
CASES: tuple[tuple[str, Callable[[], nn.Module], Tensor, list[str]], ...] = (
    ("delegate, FLOPs", lambda: nn.Linear(512, 512), WIDE, ["cpu"]),
    ("delegate, bytes", lambda: Function(lambda x: x * x), LONG, ["cpu"]),
    ("delegate's convolution, FLOPs", lambda: nn.Conv2d(8, 16, 3), IMAGE, ["cpu"]),
    ("optimised, FLOPs", lambda: nn.Linear(512, 512), WIDE, []),
    ("optimised, bytes", lambda: Function(lambda x: x * x), LONG, []),
    ("portable, FLOPs", lambda: nn.Conv2d(8, 16, 3), IMAGE, []),
    ("portable, bytes", lambda: Function(lambda x: x.view(1024, 1024).t().cos()), LONG, []),
)


def speed(module: nn.Module, example: Tensor, plugins: list[str]) -> dict[str, float]:
    """Return FLOPs and bytes per second of processor time, of the fastest of some rounds."""
    lowered = Lowerer(plugins).lower(module.eval(), (example,))
    side = Side(lowered.to_executorch().buffer, (example,))
    work = cost.total(lowered.plan["forward"].ledger.costs())
    side()
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(3):
            side()
        taken.append((time.process_time() - start) / 3)
    return {"FLOPs": work.flops / min(taken), "bytes": work.moved_bytes / min(taken)}


def main() -> None:
    """Print each kind with the speed that is measured."""
    torch.manual_seed(0)
    for name, make, example, plugins in CASES:
        unit: Any = name.rpartition(" ")[2]
        print(f"{name:30} {speed(make(), example, plugins)[unit]:.0e} a second")
    print("table:", cost._DELEGATE, cost._CONVOLUTION, cost._OPTIMISED, cost._PORTABLE)


if __name__ == "__main__":
    main()
