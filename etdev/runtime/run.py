"""Runs: a .pte in ExecuTorch's own runtime, timed, and compared with eager PyTorch."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch.utils import _pytree as pytree

from etdev.errors import RunError, SourceError, first_line
from etdev.graph.nodes import dtype_name
from etdev.pte import ptd, read
from etdev.pte.artifact import Artifact, MethodArtifact, Value


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


@frozen
class Difference:
    """How far one output is from eager: the largest absolute error, and eager's largest value."""

    max_error: float
    max_value: float


def run(
    path: str | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 1,
    data: Path | None = None,
) -> Run:
    """Execute a method once to warm up and `repeat` times for the clock.

    Args:
        path: A .pte file.
        inputs: Its inputs, flat: tensors, ints, floats and bools.
        method: Which method.
        repeat: Number of timed calls.
        data: Its .ptd; one beside it if it needs one and this is None.

    Raises:
        ArtifactError: The file is no .pte, or its .ptd isn't there.
        RunError: The runtime can't load it, or refuses the inputs.
    """
    artifact = read.read(path)
    facts = _method(artifact, method)
    _check_inputs(facts, inputs)
    inputs = [_contiguous(value) for value in inputs]
    data = data or ptd.find(artifact, Path(path))
    try:
        # Kept in this frame: the method reads the program's memory as long as it runs.
        program = _load(Path(path), data)
        loaded = program.load_method(method)
        if loaded is None:
            raise RunError(str(path), f"has no method {method!r}", "see etdev inspect")
        outputs = loaded.execute(list(inputs))
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            outputs = loaded.execute(list(inputs))
            times.append((time.perf_counter() - start) * 1000)
    except RuntimeError as error:
        backends = ", ".join(sorted({delegate.backend_id for delegate in facts.delegates}))
        raise RunError(
            f"{path}, method {method!r}",
            f"the runtime failed with {first_line(error)}",
            f"it needs the backends {backends or 'of no delegate'}; etdev inspect shows the rest",
        ) from error
    return Run(tuple(_copied(outputs)), tuple(times))


def execute(program: bytes, inputs: Sequence[Any], method: str = "forward") -> list[Any]:
    """Outputs of one call of a program in memory.

    Raises:
        RunError: The runtime refused it.
    """
    from executorch.runtime import Runtime

    try:
        loaded = Runtime.get().load_program(program)
        called = loaded.load_method(method)
        outputs = called.execute([_contiguous(value) for value in inputs])
    except RuntimeError as error:
        raise RunError(
            f"method {method!r}", f"the runtime failed with {first_line(error)}", "see etdev check"
        ) from error
    return _copied(outputs)


def random_inputs(path: str | Path, method: str = "forward", seed: int = 0) -> list[Any]:
    """Inputs that fit a method: normal floats, and zeros where a number may be an index."""
    generator = torch.Generator().manual_seed(seed)
    return [_random(value, generator) for value in _method(read.read(path), method).inputs]


def flat(value: Any) -> list[Any]:
    """Outputs of eager PyTorch in the flat order of a .pte."""
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


def compare(outputs: Sequence[Any], expected: Sequence[Any]) -> list[Difference]:
    """How far each output is from eager.

    Raises:
        RunError: They are not of the same number or shape.
    """
    if len(outputs) != len(expected):
        raise RunError(
            "check", f"{len(outputs)} outputs against {len(expected)} of eager", "is it this model?"
        )
    return [_difference(i, a, b) for i, (a, b) in enumerate(zip(outputs, expected, strict=True))]


def load_inputs(path: str | Path) -> list[Any]:
    """Inputs from a file that `torch.save` wrote: a tensor or a list of values.

    Raises:
        SourceError: It is missing or holds something else.
    """
    try:
        value = torch.load(path, weights_only=True)
    except Exception as error:
        raise SourceError(
            str(path),
            f"can't be loaded as inputs ({first_line(error)})",
            "write them with torch.save([tensor, ...], path)",
        ) from error
    return [value] if isinstance(value, torch.Tensor) else flat(value)


def _copied(outputs: Sequence[Any]) -> list[Any]:
    """Outputs in memory of their own: a method's next call overwrites its own."""
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in outputs]


def _contiguous(value: Any) -> Any:
    """The runtime takes dense tensors only, in either order of dimensions that PyTorch knows."""
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return value
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return value
    return value.contiguous()


def _method(artifact: Artifact, method: str) -> MethodArtifact:
    methods = {item.name: item for item in artifact.methods}
    if method not in methods:
        raise RunError(artifact.path, f"has no method {method!r}", f"it has {', '.join(methods)}")
    return methods[method]


def _load(path: Path, data: Path | None) -> Any:
    from executorch.runtime import Runtime

    load = Runtime.get().load_program
    if data is None:
        return load(path)
    if "data_path" not in inspect.signature(load).parameters:
        raise RunError(str(path), f"needs {data.name}", "ExecuTorch loads a .ptd here from 1.5 on")
    return load(path, data_path=data)


def _check_inputs(facts: MethodArtifact, inputs: Sequence[Any]) -> None:
    who = f"method {facts.name!r}"
    if len(inputs) != len(facts.inputs):
        raise RunError(who, f"takes {len(facts.inputs)} inputs, got {len(inputs)}", _wanted(facts))
    for index, (given, wanted) in enumerate(zip(inputs, facts.inputs, strict=True)):
        if wanted.kind == "Tensor" and not _fits(given, wanted):
            raise RunError(who, f"input {index} is {_describe(given)}", _wanted(facts))


def _fits(given: Any, wanted: Value) -> bool:
    if not isinstance(given, torch.Tensor) or dtype_name(given.dtype) != wanted.dtype:
        return False
    if given.dim() != len(wanted.sizes):
        return False
    sizes = zip(given.shape, wanted.sizes, strict=True)
    return all(a == b or (wanted.dynamic and a <= b) for a, b in sizes)


def _wanted(facts: MethodArtifact) -> str:
    return "it takes " + (", ".join(_text(value) for value in facts.inputs) or "none")


def _text(value: Value) -> str:
    if value.kind != "Tensor":
        return value.kind.lower()
    sizes = "x".join(str(size) for size in value.sizes) or "scalar"
    return f"{value.dtype} {'up to ' if value.dynamic else ''}{sizes}"


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes = "x".join(str(size) for size in value.shape) or "scalar"
    return f"{dtype_name(value.dtype)} {sizes}"


def _random(value: Value, generator: torch.Generator) -> Any:
    if value.kind != "Tensor":
        return {"Int": 1, "Double": 1.0, "Bool": True}.get(value.kind)
    dtype = getattr(torch, value.dtype)
    if dtype.is_floating_point:
        return torch.randn(value.sizes, generator=generator).to(dtype)
    return torch.zeros(value.sizes, dtype=dtype)


def _difference(index: int, output: Any, expected: Any) -> Difference:
    a, b = torch.as_tensor(output), torch.as_tensor(expected)
    if a.shape != b.shape:
        raise RunError(
            "check",
            f"output {index} has shape {tuple(a.shape)}, eager {tuple(b.shape)}",
            "is it this model?",
        )
    if a.numel() == 0:
        return Difference(0.0, 0.0)
    a, b = a.to(torch.float64), b.to(torch.float64)
    # Equal infinities differ by nan; they are no error, a nan on one side alone is.
    error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return Difference(float(error.max()), float(b.abs().max()))
