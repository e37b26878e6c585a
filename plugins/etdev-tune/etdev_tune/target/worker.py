"""Worker on a target, which runs programs, each in a process of its own.

It needs Python, ExecuTorch and a POSIX system, and no etdev: a runner sends this file and those
that it imports. Orders arrive on standard input and answers leave on standard output, each a line
of JSON and the bytes that this line announces:

    {"order": "facts"}                               describe the target
    {"order": "push", "name": NAME, "size": SIZE}    store the SIZE bytes that follow as a file
    {"order": "run", ...}                            run a program, as `Work` explains

An answer has the result, or an `error` with its `kind`; `payload` has the size of the bytes that
follow it. ExecuTorch is loaded once. Every run is a fork in which no program has been loaded yet,
and which need not wait for imports. The files lie in a folder that is removed when the input ends.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from etdev.runtime.loading import load_runtime
from etdev_tune.target.facts import facts
from etdev_tune.target.work import Work

HELLO = "etdev-worker 2"
_FORK = multiprocessing.get_context("fork")
_LOG = "run.log"
_FACTS_LIMIT_S = 20.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Answer orders until the input ends."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The client has to notice that the worker is gone, even while a run goes on.
    os.register_at_fork(after_in_child=answers.close)
    # Libraries must not print into the answers, nor read orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        send(answers, f"\n{HELLO}\n".encode())
        with tempfile.TemporaryDirectory(prefix="etdev-worker-") as folder:
            serve(orders, answers, folder)
    except BrokenPipeError:
        # The client is gone.
        os._exit(0)
    except OSError as error:
        send(answers, refusal(error))
    except ImportError as error:
        send(answers, encoded({"kind": "runtime", "error": f"{type(error).__name__}: {error}"}))
    except (EOFError, KeyboardInterrupt):
        pass


def serve(orders: IO[bytes], answers: IO[bytes], folder: str) -> None:
    """Load ExecuTorch, then answer each order; raise EOFError at their end."""
    os.chdir(folder)
    # torch makes folders for its caches too.
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # The threads of numpy's OpenBLAS would not be there after a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    load_runtime()
    send(answers, encoded({}))
    while True:
        order = orders.readline()
        if not order.endswith(b"\n"):
            raise EOFError
        send(answers, answered(orders, json.loads(order)))


def send(answers: IO[bytes], data: bytes) -> None:
    """Send an answer at once."""
    answers.write(data)
    answers.flush()


def answered(orders: IO[bytes], order: Any) -> bytes:
    """Return the answer to an order; a full disk is an answer too."""
    try:
        if order["order"] == "push":
            store(orders, os.path.basename(order["name"]), order["size"])
            return encoded({})
        if order["order"] == "facts":
            # Asking for backends loads their libraries. OpenVINO's, loaded before a run fixes its
            # threads, takes one for each processor, and twice the time.
            return forked(orders, lambda: ({"facts": facts()}, b""), _FACTS_LIMIT_S)
        return forked(orders, Work(order).answer, float(order["timeout_s"]))
    except OSError as error:
        return refusal(error)


def store(orders: IO[bytes], name: str, size: int) -> None:
    """Write the bytes that follow an order to a file."""
    data = orders.read(size)
    if len(data) < size:
        raise EOFError
    try:
        Path(name).write_bytes(data)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def encoded(answer: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return an answer and its payload as bytes."""
    return json.dumps({**answer, "payload": len(payload)}).encode() + b"\n" + payload


def refusal(error: OSError) -> bytes:
    """Return the answer for an error of the system."""
    kind = "disk" if error.errno in _FULL else "system"
    return encoded({"kind": kind, "error": error.strerror or str(error)})


def forked(orders: IO[bytes], work: Callable[[], tuple[Any, bytes]], limit_s: float) -> bytes:
    """Work in a process of its own; return its answer, or how the process ended.

    Raises:
        EOFError: The client is gone.
    """
    results, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=worked, args=(results, sender, work))
    process.start()
    sender.close()
    data = b""
    ready: list[Any] = []
    try:
        ready = wait([results, orders.fileno()], limit_s)
        # A client that waits for an answer sends nothing: its input has ended.
        if orders.fileno() in ready:
            raise EOFError
        # Without an answer, a process that ended is at the end of the pipe.
        with contextlib.suppress(EOFError):
            data = results.recv_bytes() if ready else b""
    finally:
        if not data:
            process.kill()
        process.join()
        results.close()
    if not ready:
        return encoded({"failure": ["hang", f"took longer than {limit_s:g} s"]})
    return data or encoded({"failure": ["crash", ended(process.exitcode or 0) + logged()]})


def worked(results: Connection, sender: Connection, work: Callable[[], tuple[Any, bytes]]) -> None:
    """Work in the new process, and send its answer."""
    # Without a worker that reads it, sending has to fail.
    results.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        # ExecuTorch logs from C++ to the file descriptor.
        os.dup2(os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        answer = encoded(*work())
    except OSError as error:
        answer = refusal(error)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        answer = encoded({"failure": ["refused", f"{type(error).__name__}: {lines[0]}{logged()}"]})
    sender.send_bytes(answer)
    # Not the ends of libraries' threads, which a fork does not have.
    os._exit(0)


def logged() -> str:
    """Return the first error that ExecuTorch logged in the run, in brackets."""
    with open(_LOG, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if line.startswith(("[", "E ", "F "))]
    # cpuinfo looks for facts that only the processors of phones have.
    errors = [line.partition("] ")[2].strip() for line in lines if "[cpuinfo" not in line]
    return f" ({errors[0]})" if errors else ""


def ended(exit_code: int) -> str:
    """Return how a process ended that should not have."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(-exit_code, f'signal {-exit_code}')}"
