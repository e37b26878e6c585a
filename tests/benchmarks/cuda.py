"""On a GPU: a .pte of etdev against eager PyTorch and torch.compile, in one process.

PYTHONPATH=tests python -m benchmarks.cuda
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks import record
from support.models import minilm, nets

from etdev import Lowerer
from etdev.runtime.run import run
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

MODELS = {"minilm": minilm.model, "resnet18": nets.resnet18, "llama": nets.cached_llama}
CALLS = 50
NO_RUNTIME = "not run: this ExecuTorch's runtime has no CudaBackend"


def milliseconds(call: Callable[[], Any]) -> float:
    """Median wall time of a call on the GPU, waited for; two calls before don't count."""
    times = []
    for _ in range(CALLS + 2):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    return median(times[2:])


def in_pytorch(module: Any, inputs: tuple[Any, ...]) -> dict[str, float]:
    """Eager and torch.compile, on the GPU."""
    module, moved = module.to("cuda"), [value.to("cuda") for value in inputs]
    compiled = torch.compile(module)
    with torch.no_grad():
        found = {
            "eager_ms": milliseconds(lambda: module(*moved)),
            "compiled_ms": milliseconds(lambda: compiled(*moved)),
        }
    module.to("cpu")
    return found


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Lower a model and, where a runtime is there, run it."""
    from executorch.runtime import Runtime

    module, inputs = MODELS[name]()
    with torch.no_grad():
        expected = flat(module(*inputs))
    module, inputs = MODELS[name]()
    start = time.perf_counter()
    lowered = Lowerer(["cuda", "cpu"]).lower(module, inputs)
    path = lowered.save(folder / f"{name}.pte")
    row: dict[str, Any] = {
        "model": name,
        "lowering_s": time.perf_counter() - start,
        "partitions": [f"{part.name} on {part.device}" for part in lowered.plan.partitions],
    }
    if Runtime.get().backend_registry.is_available("CudaBackend"):
        done = run(path, inputs, repeat=CALLS)
        row["pte_ms"] = done.median_ms
        row["max_error"] = max(d.max_error for d in compare(done.outputs, expected))
    else:
        row["pte_ms"] = NO_RUNTIME
    return {**row, **in_pytorch(module, inputs)}


def main() -> None:
    """Measure every model, print the table, keep it as JSON with the GPU's name."""
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs an NVIDIA GPU and a CUDA build of torch")
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(name, Path(folder)) for name in MODELS]
    device = {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    record.save("cuda", {**device, "timing_of_calls": "wall ms, median", "models": rows}, [])
    columns = ["model", "lowering_s", "pte_ms", "eager_ms", "compiled_ms"]
    record.table("on the GPU", columns, [[row[column] for column in columns] for row in rows])


if __name__ == "__main__":
    main()
