"""Functions that run programs in ExecuTorch's runtime, called in a child process."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen

from etdev.pte.artifact import MethodArtifact
from etdev.runtime.kernels import kernel_modules, missing


def load_program(source: Path | bytes, **options: Any) -> Any:
    """Load a program into executorch.runtime, with its options."""
    from executorch.runtime import Runtime

    return Runtime.get().load_program(source, **options)


@frozen(eq=False)
class Program:
    """A .pte, with its .ptd, and the modules and libraries of kernels that it may need.

    Args:
        share_arenas: Its methods share planned memory, and with it their state.
        loader: Loads it in Python, with the arguments and the result of `load_program`.
    """

    source: Path | bytes
    data: Path | None
    modules: Sequence[str]
    libraries: Sequence[str]
    share_arenas: bool = False
    loader: Callable[..., Any] = load_program

    @classmethod
    def of(
        cls, source: Path | bytes, methods: Sequence[MethodArtifact], data: Path | None = None
    ) -> Program:
        """Return a program for another process, which has another working directory."""
        torch = sys.modules.get("torch")
        libraries = sorted(torch.ops.loaded_libraries) if torch else []
        source = source.absolute() if isinstance(source, Path) else source
        kernels = kernel_modules(*methods)
        return cls(source, data.absolute() if data else None, kernels, libraries)

    def load_kernels(self) -> None:
        """Load the kernels that ExecuTorch's runtime doesn't have by itself."""
        import torch

        for module in self.modules:
            import_module(module)
        for library in self.libraries:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]

    def load(self, trace: bool = False) -> Any:
        """Load the program into the runtime of its loader."""
        self.load_kernels()
        options: dict[str, Any] = {"enable_etdump": True} if trace else {}
        if self.data:
            # ExecuTorch 1.4 has no such argument for its runtime in Python.
            options["data_path"] = self.data
        return self.loader(self.source, **options)


@frozen(eq=False)
class CallResult:
    """Outputs of a call, its inputs after it, and wall times: of repetitions, or else its own."""

    outputs: Sequence[Any]
    inputs: Sequence[Any]
    latency_ms: Sequence[float]

    @property
    def median_ms(self) -> float:
        """Median latency in milliseconds."""
        return statistics.median(self.latency_ms)


def find_missing(program: Program, method: MethodArtifact) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the backends and kernels that executorch.runtime lacks for a method."""
    program.load_kernels()
    yield missing(method)


def load_method(program: Program, method: str) -> Iterator[None]:
    """Load a method, and yield nothing if the runtime takes it."""
    # The method reads the program's memory.
    loaded = program.load()
    loaded.load_method(method)
    yield from ()


def run_calls(
    program: Program, calls: Sequence[tuple[str, Sequence[Any]]], repeat: int
) -> Iterator[CallResult]:
    """Load a program and call its methods, each call by name and inputs; their states go on."""
    # Methods read the memory of their program as long as they run. Those of one Program overwrite
    # each other's memory, unless state is planned apart from the rest.
    loaded: dict[str, Any] = {}
    methods: dict[str, Any] = {}
    for name, inputs in calls:
        key = "" if program.share_arenas else name
        if key not in loaded:
            loaded[key] = program.load()
        if name not in methods:
            methods[name] = loaded[key].load_method(name)
        outputs, own = _timed(methods[name], inputs)
        times = [_timed(methods[name], inputs)[1] for _ in range(repeat)]
        yield CallResult(list(outputs), inputs, times or [own])


def _timed(method: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], float]:
    """Return the outputs of a method, and its wall time in milliseconds."""
    start = time.perf_counter()
    outputs = method.execute(inputs)
    return outputs, (time.perf_counter() - start) * 1000


def trace_calls(
    program: Program, method: str, inputs: Sequence[Any], count: int
) -> Iterator[bytes]:
    """Call a method several times and yield its ETDump, empty if the runtime writes none."""
    loaded = program.load(trace=True)
    called = loaded.load_method(method)
    for _ in range(count):
        called.execute(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "run.etdp"
        loaded.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug.bin"))
        yield dump.read_bytes() if dump.exists() else b""
