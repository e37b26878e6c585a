"""Runs of programs in ExecuTorch's runtime, by a runner whose process a program may take down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from etdev.errors import RunError
from etdev.pte import digest, ptd
from etdev.pte.artifact import MethodArtifact
from etdev.pte.read import methods_in, read
from etdev.runtime.child import LIMIT_S, ChildResult
from etdev.runtime.inputs import prepared
from etdev.runtime.runners import PYTHON, Runner
from etdev.runtime.worker import CallResult, Program

NO_TRACE = "use ExecuTorch 1.5 or later, or build it with EXECUTORCH_ENABLE_EVENT_TRACER"


def run(  # noqa: PLR0913 (public, and called with keywords)
    path: str | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    repeat: int = 1,
    data: Path | None = None,
    runner: Runner = PYTHON,
) -> CallResult:
    """Execute a method once, for its outputs and to warm up, then `repeat` times with a clock."""
    facts, program, given = _checked(path, inputs, method, data)
    outcome = runner.call(program, [(method, given)], repeat, LIMIT_S)
    result: CallResult = _value(outcome, path, facts)
    return result


def trace(  # noqa: PLR0913 (the arguments of `run`)
    path: Path,
    inputs: Sequence[Any],
    method: str,
    repeat: int,
    data: Path | None = None,
    runner: Runner = PYTHON,
) -> bytes:
    """Execute a method as `run` does, with ExecuTorch's event tracer, and return the ETDump."""
    facts, program, given = _checked(path, inputs, method, data)
    outcome = runner.trace(program, method, given, repeat + 1)
    dump: bytes = _value(outcome, path, facts)
    if not dump:
        raise RunError(str(path), "the runtime writes no trace", NO_TRACE)
    return dump


def execute(program: bytes, inputs: Sequence[Any], method: str = "forward") -> list[Any]:
    """Call a method of a program in memory once and return its outputs."""
    facts = {known.name: known for known in methods_in(program)}[method]
    outcome = run_series(program, [(facts, inputs)])
    if outcome.failure is not None:
        raise RunError(f"method {method!r}", outcome.failure, "see etdev check")
    return list(outcome.values[0].outputs)


def run_series(  # noqa: PLR0913 (the arguments of `run`)
    source: Path | bytes,
    calls: Sequence[tuple[MethodArtifact, Sequence[Any]]],
    data: Path | None = None,
    limit_s: float = LIMIT_S,
    runner: Runner = PYTHON,
    share_arenas: bool = False,
) -> ChildResult:
    """Load the methods of one program and call them in turn; states are carried from call to call.

    The values of the outcome are a CallResult for each call that finished.
    """
    program = Program.of(source, [facts for facts, _ in calls], data)
    made = [(facts.name, prepared(facts, inputs)) for facts, inputs in calls]
    return runner.call(evolve(program, share_arenas=share_arenas), made, 0, limit_s)


def _checked(
    path: str | Path, inputs: Sequence[Any], method: str, data: Path | None
) -> tuple[MethodArtifact, Program, list[Any]]:
    """Return a method, its program, and the inputs as the runtime reads them."""
    artifact = read(path)
    facts = artifact.method(method)
    given = prepared(facts, inputs)
    data = data or ptd.find(artifact, Path(path))
    digest.compare(Path(path), data)
    program = Program.of(Path(path), [facts], data)
    return facts, program, given


def _value(outcome: ChildResult, path: str | Path, facts: MethodArtifact) -> Any:
    """Return the only value of a function that ran in the child process."""
    if outcome.failure is None:
        return outcome.values[0]
    backends = ", ".join(sorted({delegate.backend_id for delegate in facts.delegates}))
    needs = f"it needs the backends {backends}" if backends else ""
    cure = needs or "it has no delegates, so a portable kernel failed"
    raise RunError(f"{path}, method {facts.name!r}", outcome.failure, f"{cure}; see etdev check")
