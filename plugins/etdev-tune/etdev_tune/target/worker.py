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
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from etdev.runtime.loading import load_runtime
from etdev_tune.target.facts import facts
from etdev_tune.target.work import Work

HELLO = "etdev-worker 1"
_LOG = "run.log"
_FACTS_LIMIT_S = 20.0
# A client whose machine vanished never closes the connection.
_IDLE_S = 6 * 3600
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHUNK = 1 << 20


def main() -> None:
    """Answer orders until the input ends."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Libraries must not print into the answers, nor read orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
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
        signal.alarm(_IDLE_S)
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
    """Write the bytes that follow an order to a file; read all of them even if the disk is full."""
    rest = size
    try:
        # Without a buffer, which would be written once more when the file is closed.
        with open(name, "wb", buffering=0) as file:
            while rest:
                chunk = taken(orders, rest)
                rest -= len(chunk)
                while chunk:
                    chunk = chunk[file.write(chunk) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(name)
        while rest:
            rest -= len(taken(orders, rest))
        raise


def taken(orders: IO[bytes], most: int) -> bytes:
    """Return some of the bytes that follow an order; raise EOFError at their end."""
    chunk = orders.read(min(most, _CHUNK))
    if not chunk:
        raise EOFError
    return chunk


def encoded(answer: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return an answer and its payload as bytes."""
    return json.dumps({**answer, "payload": len(payload)}).encode() + b"\n" + payload


def refusal(error: OSError) -> bytes:
    """Return the answer for an error of the system."""
    kind = "disk" if error.errno in _FULL else "system"
    return encoded({"kind": kind, "error": error.strerror or str(error)})


def forked(orders: IO[bytes], work: Callable[[], tuple[Any, bytes]], limit_s: float) -> bytes:
    """Work in a process of its own; return its answer, or how the process ended."""
    results, end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(results)
            # ExecuTorch logs from C++ to the file descriptor.
            os.dup2(os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            with os.fdopen(end, "wb") as file:
                file.write(worked(work))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(end)
    data: bytes | None = None
    try:
        data = received(orders, results, limit_s)
    finally:
        os.close(results)
        if data is None:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if data is None:
        return encoded({"failure": ["hang", f"took longer than {limit_s:g} s"]})
    if status:
        return encoded({"failure": ["crash", ended(status) + logged()]})
    return data


def worked(work: Callable[[], tuple[Any, bytes]]) -> bytes:
    """Work in the new process; return its answer."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        return encoded(*work())
    except OSError as error:
        return refusal(error)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return encoded({"failure": ["refused", f"{type(error).__name__}: {lines[0]}{logged()}"]})


def received(orders: IO[bytes], results: int, limit_s: float) -> bytes | None:
    """Return all that a process sends, or None if it takes too long.

    Raises:
        EOFError: The client is gone.
    """
    data = []
    end = time.monotonic() + limit_s
    while (rest := end - time.monotonic()) > 0:
        ready, _, _ = select.select([results, orders.fileno()], [], [], rest)
        # A client that waits for an answer sends nothing: its input has ended.
        if orders.fileno() in ready:
            raise EOFError
        if ready:
            data.append(os.read(results, _CHUNK))
            if not data[-1]:
                return b"".join(data)
    return None


def logged() -> str:
    """Return the first error that ExecuTorch logged in the run, in brackets."""
    with open(_LOG, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if line.startswith(("[", "E ", "F "))]
    # cpuinfo looks for facts that only the processors of phones have.
    errors = [line.partition("] ")[2].strip() for line in lines if "[cpuinfo" not in line]
    return f" ({errors[0]})" if errors else ""


def ended(status: int) -> str:
    """Return how a process ended that should not have."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(number, f'signal {number}')}"
