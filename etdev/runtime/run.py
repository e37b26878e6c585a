"""Runs: a .pte in ExecuTorch's own runtime, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from etdev.errors import RunError, first_line
from etdev.pte import ptd
from etdev.pte.artifact import MethodArtifact
from etdev.pte.read import methods_in, read
from etdev.runtime.inputs import check_inputs, laid_out, method_of
from etdev.runtime.isolation import Job, isolated
from etdev.runtime.kernels import load_kernels
from etdev.runtime.memory_check import check_memory
from etdev.upstream.versions import load_program


@frozen(eq=False)
class Run:
    """Outputs of one method and how long it took.

    Args:
        outputs: What the method returned, flat.
        latency_ms: Wall time of each timed call in milliseconds.
    """

    outputs: tuple[Any, ...]
    latency_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Median latency in milliseconds."""
        return statistics.median(self.latency_ms)


def run_apart(
    path: str | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 1,
    data: Path | None = None,
) -> Run:
    """Do the same as `run` in a process of its own, which the file may take down.

    Raises:
        ArtifactError: The file is not a .pte, or its .ptd is missing.
        RunError: The runtime can't load it, refuses the inputs, or dies of it.
    """
    facts, data = _checked(path, inputs, method, data)
    job = Job(Path(path), method, [laid_out(facts, inputs)], data, repeat)
    (result,) = isolated([job])
    if result.failure is not None:
        raise RunError(f"{path}, method {method!r}", result.failure, _cure(facts))
    (call,) = result.calls
    return Run(tuple(call.outputs), tuple(call.latency_ms))


def run(
    path: str | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 1,
    data: Path | None = None,
) -> Run:
    """Execute a method once to warm up, then `repeat` times under the clock.

    Args:
        path: A .pte file.
        inputs: Its inputs, flat: tensors, ints, floats and bools.
        method: Which method.
        repeat: Number of timed calls.
        data: Its .ptd; one beside it if it needs one and this is None.

    Raises:
        ArtifactError: The file is not a .pte, or its .ptd is missing.
        RunError: The runtime can't load it, or refuses the inputs.
    """
    facts, data = _checked(path, inputs, method, data)
    try:
        # Kept in this frame: the method reads the program's memory as long as it runs.
        program = load_program(Path(path), data)
        return _timed(program.load_method(method), laid_out(facts, inputs), repeat)
    except RuntimeError as error:
        raise RunError(
            f"{path}, method {method!r}",
            f"the runtime failed with {first_line(error)}",
            _cure(facts),
        ) from error


def _checked(
    path: str | Path, inputs: Sequence[Any], method: str, data: Path | None
) -> tuple[MethodArtifact, Path | None]:
    """The method, whose inputs fit and whose kernels are loaded, and its .ptd."""
    artifact = read(path)
    facts = method_of(artifact, method)
    check_inputs(facts, inputs)
    check_memory(facts)
    data = data or ptd.find(artifact, Path(path))
    load_kernels(facts)
    return facts, data


def execute(program: bytes, inputs: Sequence[Any], method: str = "forward") -> list[Any]:
    """Call a method of a program in memory once and return its outputs.

    Raises:
        RunError: The runtime refused it.
    """
    from executorch.runtime import Runtime

    try:
        loaded = Runtime.get().load_program(program)
        facts = {known.name: known for known in methods_in(program)}[method]
        return _copied(loaded.load_method(method).execute(laid_out(facts, inputs)))
    except RuntimeError as error:
        raise RunError(
            f"method {method!r}", f"the runtime failed with {first_line(error)}", "see etdev check"
        ) from error


def _timed(method: Any, inputs: Sequence[Any], repeat: int) -> Run:
    outputs = method.execute(inputs)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        outputs = method.execute(inputs)
        times.append((time.perf_counter() - start) * 1000)
    return Run(tuple(_copied(outputs)), tuple(times))


def _copied(outputs: Sequence[Any]) -> list[Any]:
    """Outputs in memory that the method's next call does not overwrite."""
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in outputs]


def _cure(method: MethodArtifact) -> str:
    backends = ", ".join(sorted({delegate.backend_id for delegate in method.delegates}))
    if not backends:
        return "it has no delegates, so a portable kernel failed; see etdev check"
    return f"it needs the backends {backends}; see etdev check"
