"""Other runtimes on the models of a benchmark, each for a process of its own."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# As a .pte is measured: warmed up by so many calls, and for so many seconds.
WARMUP, WARMUP_S, CALLS, SECONDS = 5, 0.02, 40, 2.0
Call = Callable[[], Sequence[Any]]


def eager(module: Any, inputs: Sequence[Any], threads: int) -> Call:
    """PyTorch itself."""
    from etdev.upstream.trees import flat

    return lambda: flat(module(*inputs))


def compiled(module: Any, inputs: Sequence[Any], threads: int) -> Call:
    """torch.compile with Inductor."""
    import torch

    from etdev.upstream.trees import flat

    own = torch.compile(module)
    return lambda: flat(own(*inputs))


def openvino(module: Any, inputs: Sequence[Any], threads: int, precision: str = "f32") -> Call:
    """OpenVINO's own runtime."""
    import openvino as ov
    import torch

    model = ov.convert_model(torch.export.export(module, tuple(inputs)), example_input=inputs)
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    arrays = [value.numpy() for value in inputs]

    def call() -> list[Any]:
        results = request.infer(arrays, share_inputs=True, share_outputs=True)
        return [torch.from_numpy(value) for value in results.values()]

    return call


def openvino_bf16(module: Any, inputs: Sequence[Any], threads: int) -> Call:
    """OpenVINO's own runtime, as it rounds unasked where the CPU has bfloat16."""
    return openvino(module, inputs, threads, "bf16")


def onnxruntime(module: Any, inputs: Sequence[Any], threads: int) -> Call:
    """ONNX Runtime."""
    import onnxruntime as ort
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(inputs), file, dynamo=True)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    feeds = {
        known.name: value.numpy() for known, value in zip(session.get_inputs(), inputs, strict=True)
    }
    return lambda: [torch.from_numpy(value) for value in session.run(None, feeds)]


RIVALS = {
    "eager": eager,
    "torch.compile": compiled,
    "openvino": openvino,
    "openvino bf16": openvino_bf16,
    "onnxruntime": onnxruntime,
}
_NEEDS = {"openvino": "openvino", "openvino bf16": "openvino", "onnxruntime": "onnxruntime"}


def installed() -> list[str]:
    """The rivals that can run here."""
    return [
        name for name in RIVALS if importlib.util.find_spec(_NEEDS.get(name, "torch")) is not None
    ]


def measure(name: str, model: str, threads: int) -> dict[str, Any]:
    """Times of a rival, and its largest error against eager, relative to the largest value."""
    import torch
    from benchmarks import record
    from benchmarks.tune import MODELS

    from etdev.upstream.trees import flat

    if hasattr(os, "sched_setaffinity"):
        # As the runner does with a .pte.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    module, inputs = MODELS[model]()
    with torch.no_grad():
        expected = flat(module(*inputs))
        call = RIVALS[name](module, inputs, threads)
        error = record.errors(call(), expected)
        warm = time.perf_counter() + WARMUP_S
        while time.perf_counter() < warm:
            call()
        for _ in range(WARMUP):
            call()
        times: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(times) < 3 or (len(times) < CALLS and time.perf_counter() < end):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1000)
    return {"times_ms": times, "error": error}
