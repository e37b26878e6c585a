"""The compile cache: lowered again, unchanged and with one layer's weights changed, and hashing.

PYTHONPATH=tests python -m benchmarks.cache [--models llama-12]

What is compared, in one process that has lowered a small model before:

- `each`: the compile stage when XNNPACK compiles every partition by itself, without a cache. That
  is what "cold" meant when the promises were made, and what they are held against.
- `cold`: the stage with an empty cache, of a plugin that compiles each structure once and exchanges
  weights. It writes the cache, too.
- `warm`: the stage with everything in the cache.
- `layer`: with the weights of one layer changed. Other processes' structures are in the cache, this
  one's own memory of them is emptied first.

Whole lowerings are in processor seconds, which a busy machine hardly changes. The stage is by the
clock, for a machine that does nothing else: that is what a user waits, and large weights are hashed
and copied by all processors. It is all between a plan and compiled delegates: splitting, hashing,
reading, and copying the weights of delegates, which are not in the cache but in the program.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from attrs import frozen
from benchmarks import record
from benchmarks.lowering import MODELS, exported, upstream
from etdev_cpu import compiler
from support.models import nets
from torch import nn

from etdev import Lowerer
from etdev.delegate.cache.digests import Digests
from etdev.lowered import Lowered

ROUNDS = 3


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="Size of what is hashed.")
    options = parser.parse_args()
    record.quiet()
    upstream(exported(nets.mlp()))
    lowered(exported(nets.mlp()), False)
    rows = [measured(name) for name in options.models]
    hashing = hashed(options.bytes)
    promises = bars(rows, hashing)
    record.save("cache", {"models": rows, "hashing": hashing}, promises)
    record.columns("lowerings, and their compile stage", rows)
    record.show("cache", promises)


def bars(rows: Sequence[dict[str, Any]], hashing: dict[str, float]) -> list[record.Bar]:
    """The promises."""
    found = []
    for row in rows:
        name, each_s = row["model"], row["each_stage_wall_s"]
        for what, key, bound in (("unchanged", "warm", 20), ("one layer changed", "layer", 10)):
            ratio = each_s / row[f"{key}_stage_wall_s"]
            what = f"{name}, {what}, each partition compiled for it"
            found.append(record.Bar(what, ratio, bound, least=True))
        whole = row["upstream_s"] / row["warm_s"]
        found.append(record.Bar(f"{name}, warm against upstream", whole, 3, least=True))
    found.append(record.Bar("hashing for reading", hashing["ratio"], 1.0))
    return found


def measured(name: str) -> dict[str, Any]:
    """One model: upstream's lowering, ours cold, warm, and warm but for a layer."""
    model, inputs = MODELS[name]()
    program = exported((model, inputs))
    record.console.print(f"{name}: upstream, each partition, cold, warm, one layer ...")
    upstream_s = record.clock(lambda: upstream(program))[0].cpu_s
    # XNNPACK compiles every partition, whatever its structure.
    with mock.patch.object(compiler, "structure_of", return_value=None):
        each = _clocked(program, False)
    with tempfile.TemporaryDirectory() as folder:
        cold = _clocked(program, folder)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.entry"))
        warm = min(
            (_clocked(program, folder) for _ in range(ROUNDS)), key=lambda run: run.stage_wall_s
        )
        if warm.states != {"hit"}:
            raise RuntimeError(f"{name}: {warm.states}")
        change(model)
        layer = _clocked(exported((model, inputs)), folder)
    runs = {"each": each, "cold": cold, "warm": warm, "layer": layer}
    return {
        "model": name,
        "partitions": cold.partitions,
        "entries_bytes": size,
        "upstream_s": upstream_s,
        "cold_s": cold.whole_s,
        "warm_s": warm.whole_s,
        **{f"{name}_stage_wall_s": run.stage_wall_s for name, run in runs.items()},
    }


def change(model: nn.Module) -> None:
    """Change the weights of the linear layers in the middle of a model."""
    layers = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    largest = max(layers, key=len)
    with torch.no_grad():
        for parameter in largest[len(largest) // 2].parameters():
            parameter.add_(0.001)


def lowered(program: Any, cache: Any) -> Lowered:
    """Our whole lowering."""
    result = Lowerer(["cpu"], cache=cache).lower(program)
    result.to_executorch()
    return result


@frozen
class Run:
    """A lowering: processor seconds of all of it, and its compile stage by the clock."""

    whole_s: float
    stage_wall_s: float
    partitions: int
    states: set[str]


def _clocked(program: Any, cache: Any) -> Run:
    compiler._TEMPLATES.clear()
    took, result = record.clock(lambda: lowered(program, cache))
    spent = result.stages.seconds
    states = {outcome.state for outcome in result.outcomes}
    return Run(took.cpu_s, spent["split"] + spent["compile"], len(result.outcomes), states)


def hashed(size_bytes: int) -> dict[str, float]:
    """Hash constants, and read as many bytes from a file in the system's memory."""
    tensors = [torch.randn(size_bytes // 64 // 4) for _ in range(64)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data")
        with path.open("wb") as file:
            for tensor in tensors:
                file.write(tensor.numpy().data)
            os.fsync(file.fileno())
        reading, hashing = [], []
        for _ in range(ROUNDS):
            reading.append(record.clock(path.read_bytes)[0].wall_s)
            digests = Digests()
            job = lambda known=digests: [known.of("x", tensor) for tensor in tensors]  # noqa: E731
            hashing.append(record.clock(job)[0].wall_s)
    return {
        "read_s": min(reading),
        "hash_s": min(hashing),
        "ratio": min(hashing) / min(reading),
    }


if __name__ == "__main__":
    main()
