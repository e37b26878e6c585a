"""The compile cache: lowered again, unchanged and with one layer's weights changed, and hashing.

PYTHONPATH=tests python -m benchmarks.cache [--models llama-12]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks import record
from benchmarks.lowering import MODELS, exported, upstream
from models import nets
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
    columns = ["upstream", "cold", "warm", "cold_compile", "warm_compile", "layer_compile"]
    cells = [(row["model"], *(f"{row[f'{name}_s']:.2f}" for name in columns)) for row in rows]
    record.table("lowered again, seconds", ["model", *columns], cells)
    record.show("cache", promises)


def bars(rows: Sequence[dict[str, Any]], hashing: dict[str, float]) -> list[record.Bar]:
    """The promises."""
    found = []
    for row in rows:
        name, compile_s = row["model"], row["cold_compile_s"]
        for what, key, bound in (("unchanged", "warm", 20), ("one layer changed", "layer", 10)):
            ratio = compile_s / row[f"{key}_compile_s"]
            found.append(record.Bar(f"{name}, {what}, compile stage", ratio, bound, least=True))
        whole = row["upstream_s"] / row["warm_s"]
        found.append(record.Bar(f"{name}, warm against upstream", whole, 3, least=True))
    found.append(record.Bar("hashing for reading", hashing["ratio"], 1.0))
    return found


def measured(name: str) -> dict[str, Any]:
    """One model: upstream's lowering, ours cold, warm, and warm but for a layer."""
    model, inputs = MODELS[name]()
    program = exported((model, inputs))
    record.console.print(f"{name}: upstream ...")
    upstream_s = record.clock(lambda: upstream(program))[0].cpu_s
    with tempfile.TemporaryDirectory() as folder:
        record.console.print(f"{name}: cold, warm, one layer ...")
        cold, first = _clocked(program, folder)
        warm, again = min((_clocked(program, folder) for _ in range(ROUNDS)), key=_seconds)
        if {outcome.state for outcome in again.outcomes} != {"hit"}:
            raise RuntimeError(f"{name}: {again.outcomes}")
        change(model)
        layer, _ = _clocked(exported((model, inputs)), folder)
    return {
        "model": name,
        "partitions": len(first.outcomes),
        "upstream_s": upstream_s,
        "cold_s": cold["whole"],
        "warm_s": warm["whole"],
        "cold_compile_s": cold["compile"],
        "warm_compile_s": warm["compile"],
        "layer_compile_s": layer["compile"],
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


def _clocked(program: Any, folder: str) -> tuple[dict[str, float], Lowered]:
    took, result = record.clock(lambda: lowered(program, folder))
    # Stages are by the clock on the wall: scaled to processor time, as the whole is.
    compile_s = result.stages.seconds["compile"] * took.cpu_s / took.wall_s
    return {"whole": took.cpu_s, "compile": compile_s}, result


def _seconds(run: tuple[dict[str, float], Lowered]) -> float:
    return run[0]["whole"]


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
