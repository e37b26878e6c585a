"""Worker that runs programs, each in a process of its own, on a POSIX system.

It answers orders until they end:

    {"order": "facts"}      facts about this machine
    {"order": "run", ...}   runs a program as in `Work`

ExecuTorch is loaded once. Every run is a fork in which no program has been loaded yet, and which
need not wait for imports. What it logs lies in a folder that is removed at the end.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import IO, Any

from etdev.runtime.ending import ending, first_error
from etdev.runtime.loading import load_runtime
from etdev_tune.process.facts import facts
from etdev_tune.process.messages import receive, send
from etdev_tune.process.work import Work

_LOG = "run.log"
_FACTS_LIMIT_S = 20.0


def main() -> None:
    """Answer orders until they end."""
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # The client has to notice that the worker is gone, even while a run goes on.
    os.register_at_fork(after_in_child=answers.close)
    # Libraries must not print into the answers, nor read orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # An interrupt is for the client, which then ends the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with (
        tempfile.TemporaryDirectory(prefix="etdev-worker-") as folder,
        contextlib.suppress(EOFError),
    ):
        os.chdir(folder)
        # torch makes folders for its caches too.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        # The threads of numpy's OpenBLAS would not be there after a fork.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        load_runtime()
        while True:
            send(answers, answer(orders, receive(orders)))


def answer(orders: IO[bytes], order: dict[str, Any]) -> Any:
    """Return the answer to an order.

    Raises:
        EOFError: The client is gone.
        OSError: Raised in the fork.
    """
    if order["order"] == "facts":
        # Asking for backends loads their libraries. OpenVINO's, loaded before a run fixes its
        # threads, takes one for each processor, and twice the time.
        return forked(orders, facts, _FACTS_LIMIT_S)
    return forked(orders, Work(order).result, float(order["timeout_s"]))


def forked(orders: IO[bytes], work: Callable[[], Any], limit_s: float) -> Any:
    """Work in a process of its own; return the result, or kind and detail of a failure.

    Raises:
        EOFError: The client is gone.
        OSError: Raised there.
    """
    reading, writing = os.pipe()
    process = multiprocessing.get_context("fork").Process(
        target=worked, args=(reading, writing, work)
    )
    process.start()
    os.close(writing)
    found: Any = None
    with os.fdopen(reading, "rb") as results:
        try:
            ready = wait([reading, orders.fileno()], limit_s)
            # A client that waits for an answer sends nothing: its input has ended.
            if orders.fileno() in ready:
                raise EOFError
            # Without a result, the process died.
            with contextlib.suppress(EOFError):
                found = receive(results) if ready else None
        finally:
            if not found:
                process.kill()
            process.join()
    if not ready:
        return {"kind": "hang", "detail": f"took longer than {limit_s:g} s"}
    if not found:
        return {"kind": "crash", "detail": ending(process.exitcode or 0) + logged()}
    if "error" in found:
        raise OSError(found["error"])
    return found


def worked(reading: int, writing: int, work: Callable[[], Any]) -> None:
    """Work in the new process, and send the result."""
    # Without a worker that reads it, sending has to fail.
    os.close(reading)
    try:
        # ExecuTorch logs from C++ to the file descriptor.
        os.dup2(os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        found = work()
    except OSError as error:
        found = {"error": str(error)}
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        text = f"{type(error).__name__}: {lines[0]}{logged()}"
        found = {"kind": "refused", "detail": text}
    with os.fdopen(writing, "wb") as results:
        send(results, found)
    # Not the ends of libraries' threads, which a fork does not have.
    os._exit(0)


def logged() -> str:
    """Return the first error that ExecuTorch logged in the run, in brackets."""
    with open(_LOG, encoding="utf-8", errors="replace") as log:
        error = first_error(log)
    return f" ({error})" if error else ""


if __name__ == "__main__":
    main()
