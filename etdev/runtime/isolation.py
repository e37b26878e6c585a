"""Isolation: calls of .pte files in a process of its own, whose end is a result too."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from etdev.errors import RunError, first_line
from etdev.files import scratch


@frozen(eq=False)
class Job:
    """Calls of one method, one after the other, freshly loaded before the first.

    Args:
        path: The .pte.
        method: Its method.
        calls: Inputs of each call, flat.
        data: Its .ptd, if it has one.
        repeat: How often each call is repeated under the clock.
    """

    path: Path
    method: str
    calls: Sequence[Sequence[Any]]
    data: Path | None = None
    repeat: int = 0


@frozen(eq=False)
class Call:
    """What a call left behind, flat: its outputs, and its inputs, which it may have written to.

    Of a call that is repeated, those of the last time, and the wall time of each in milliseconds.
    """

    outputs: Sequence[Any]
    inputs: Sequence[Any]
    latency_ms: Sequence[float] = ()


@frozen(eq=False)
class Result:
    """What became of a job.

    Args:
        calls: The calls that came to their end.
        failure: Why the next one did not, or None.
    """

    calls: Sequence[Call]
    failure: str | None = None


class _Worker:
    """The other process. It is kept, as it takes seconds to load ExecuTorch, and ends with ours."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def work(self, folder: Path, limit_s: float) -> str:
        """Have the jobs of a folder run; returns how the process ended, if it did."""
        with self._lock:
            process = self._started()
            assert process.stdin
            assert process.stdout
            timer = threading.Timer(limit_s, process.kill)
            timer.start()
            try:
                process.stdin.write(f"{folder}\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass
            try:
                answer = process.stdout.readline()
            except BaseException:
                # Such as Ctrl-C: what runs there may never come to an end.
                timer.cancel()
                self._kill()
                raise
            if answer:
                timer.cancel()
                return "did not finish"
            code = process.wait()
            self._process = None
            late = not timer.is_alive() and code == -signal.SIGKILL
            timer.cancel()
            return f"took longer than {limit_s:g} s" if late else _end(code)

    def close(self) -> None:
        """End the process."""
        if process := self._process:
            try:
                process.communicate(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                self._kill()
            self._process = None

    def start(self) -> None:
        """Begin to load ExecuTorch there."""
        with self._lock:
            self._started()

    def _kill(self) -> None:
        if process := self._process:
            self._process = None
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            path = os.pathsep.join(folder for folder in sys.path if folder)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "etdev.runtime.worker"],
                cwd=tempfile.gettempdir(),
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process


# A method that runs for longer than this is taken for one that hangs.
LIMIT_S = 1800.0
# What an idle worker takes to end.
_GRACE_S = 10.0
_WORKER = _Worker()
atexit.register(_WORKER.close)


def prepare() -> None:
    """Start the other process ahead of its jobs, since it takes seconds to load ExecuTorch."""
    _WORKER.start()


def isolated(jobs: Sequence[Job], limit_s: float = LIMIT_S) -> list[Result]:
    """Run jobs in ExecuTorch's runtime, in another process; a new one after each that dies.

    Args:
        jobs: What to run.
        limit_s: When to end a process that hangs.
    """
    results: list[Result] = []
    while len(results) < len(jobs):
        rest = dict(enumerate(jobs[len(results) :]))
        with scratch() as folder:
            results += _worked(Path(folder), rest, limit_s)
    return results


def save_inputs(inputs: Any, file: Path) -> None:
    """Write inputs to a file in a temporary folder.

    Raises:
        RunError: There is no room for it.
    """
    try:
        torch.save(inputs, file)
    # torch's own writer turns a full disk into a RuntimeError.
    except (OSError, RuntimeError) as error:
        what = f"inputs can't be written there ({first_line(error)})"
        raise RunError(str(file.parents[1]), what, "make room, or set TMPDIR") from error


def _worked(folder: Path, jobs: Mapping[int, Job], limit_s: float) -> Iterator[Result]:
    """The results of the jobs that one process came to, the one that it died of included."""
    work = {"libraries": sorted(torch.ops.loaded_libraries), "jobs": _plain(jobs)}
    save_inputs(work, folder / "jobs.pt")
    end = _WORKER.work(folder, limit_s)
    for index, job in jobs.items():
        result = _result(folder, index, len(job.calls))
        if result.failure is None and len(result.calls) < len(job.calls):
            yield Result(result.calls, f"the process {end}{_log(folder, index)}")
            return
        yield result


def _plain(jobs: Mapping[int, Job]) -> dict[int, Any]:
    return {
        index: {
            "path": str(job.path.absolute()),
            "method": job.method,
            "data": str(job.data.absolute()) if job.data else None,
            "repeat": job.repeat,
            "calls": [[_own(value) for value in call] for call in job.calls],
        }
        for index, job in jobs.items()
    }


def _own(value: Any) -> Any:
    """A tensor without the rest of a larger one that it is a view of, which would be saved too."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _result(folder: Path, index: int, count: int) -> Result:
    files = [folder / f"{index}-{call}.pt" for call in range(count)]
    loaded = [torch.load(file, weights_only=True) for file in files if file.is_file()]
    calls = [Call(one["outputs"], one["inputs"], one["latency_ms"]) for one in loaded]
    refusal = folder / f"{index}.txt"
    if not refusal.is_file():
        return Result(calls)
    text = " ".join(refusal.read_text("utf-8").split())
    return Result(calls, f"the runtime failed with {text}{_log(folder, index)}")


def _log(folder: Path, index: int) -> str:
    """The first error that ExecuTorch logged for a job, in brackets."""
    file = folder / f"{index}.log"
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    errors = [line.partition("] ")[2] for line in lines if line.startswith(("[", "E ", "F "))]
    return f" ({errors[0].strip()})" if errors else ""


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(-code, f'signal {-code}')}"
