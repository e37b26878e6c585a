"""Functions that run programs in ExecuTorch's runtime, called in a child process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen


@frozen(eq=False)
class Program:
    """A method of a .pte, with its .ptd and the libraries of kernels that it may need."""

    source: Path | bytes
    method: str
    data: Path | None
    libraries: Sequence[str]

    def load(self, trace: bool = False) -> Any:
        """Load the program into ExecuTorch's runtime."""
        for library in self.libraries:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        from executorch.runtime import Runtime

        options: dict[str, Any] = {"enable_etdump": True} if trace else {}
        if self.data:
            # ExecuTorch 1.4 has no such argument for its runtime in Python.
            options["data_path"] = self.data
        return Runtime.get().load_program(self.source, **options)


@frozen(eq=False)
class CallResult:
    """Outputs of a call, its inputs after it, and the wall time of each repetition of it."""

    outputs: Sequence[Any]
    inputs: Sequence[Any]
    latency_ms: Sequence[float]


def load_method(program: Program) -> Iterator[None]:
    """Load a method, and yield nothing if the runtime takes it."""
    # The method reads the program's memory.
    loaded = program.load()
    loaded.load_method(program.method)
    yield from ()


def run_calls(
    program: Program, calls: Sequence[Sequence[Any]], repeat: int
) -> Iterator[CallResult]:
    """Load a method and call it with each of some inputs; state is carried from call to call."""
    # The method reads the program's memory as long as it runs.
    loaded = program.load()
    method = loaded.load_method(program.method)
    for inputs in calls:
        outputs, times = method.execute(inputs), []
        for _ in range(repeat):
            start = time.perf_counter()
            method.execute(inputs)
            times.append((time.perf_counter() - start) * 1000)
        yield CallResult(list(outputs), inputs, times)


def trace_calls(program: Program, inputs: Sequence[Any], count: int) -> Iterator[bytes]:
    """Call a method several times and yield its ETDump, empty if the runtime writes none."""
    loaded = program.load(trace=True)
    method = loaded.load_method(program.method)
    for _ in range(count):
        method.execute(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "run.etdp"
        loaded.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug.bin"))
        yield dump.read_bytes() if dump.exists() else b""
