"""Worker on a target, which runs programs, each in a process of its own.

It needs Python, ExecuTorch and a POSIX system, and no etdev: a runner sends this file and those
that it imports. Orders arrive on standard input and answers leave on standard output, each a line
of JSON and the bytes that this line announces:

    {"order": "facts"}                               describe the target
    {"order": "push", "name": NAME, "size": SIZE}    store the SIZE bytes that follow as a file
    {"order": "drop", "name": NAME}                  remove a file
    {"order": "run", ...}                            run a program, as `Work` explains

An answer has the result, or an `error` with its `kind`; `payload` has the sizes of the byte strings
that follow it.

ExecuTorch is loaded once. Every run is a fork in which no program has been loaded yet, and which
need not wait for imports. The files lie in a folder that is removed when the input ends.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

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


class Client:
    """The runner at the other end of standard input and output."""

    def __init__(self) -> None:
        self.orders = os.fdopen(os.dup(0), "rb")
        self._answers = os.dup(1)

    def order(self) -> Any:
        """Return the next order; raise EOFError if there is none."""
        signal.alarm(_IDLE_S)
        line = self.orders.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def send(self, data: bytes) -> None:
        """Send all of some bytes; raise EOFError if nobody reads them."""
        try:
            write(self._answers, data)
        except BrokenPipeError:
            raise EOFError from None

    def store(self, name: str, size: int) -> None:
        """Write what follows an order to a file, whole or not at all; read it all in any case."""
        part, failure, file = name + ".part", None, -1
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            failure = error
        while size:
            chunk = self.orders.read(min(size, _CHUNK))
            if not chunk:
                raise EOFError
            size -= len(chunk)
            try:
                if not failure:
                    write(file, chunk)
            except OSError as error:
                failure = error
                # Make room for the next order.
                os.truncate(part, 0)
        if file >= 0:
            os.close(file)
        if failure:
            raise failure
        os.replace(part, name)

    def close(self) -> None:
        """Leave the connection to the other process that has it."""
        os.close(self.orders.fileno())
        os.close(self._answers)


def write(file: int, data: bytes) -> None:
    """Write all of some bytes to a file descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def main() -> None:
    """Answer orders until there are no more."""
    client = Client()
    # What libraries print must not be taken for an answer, nor may they read orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit(1))
    folder = ""
    try:
        client.send(b"\n" + HELLO.encode() + b"\n")
        folder = tempfile.mkdtemp(prefix="etdev-worker-")
        os.chdir(folder)
        # torch makes folders for its caches too.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        # The threads of numpy's OpenBLAS would not be there after a fork.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        load_runtime()
        client.send(encoded({"folder": folder}))
        while True:
            client.send(answered(client, client.order()))
    except OSError as error:
        client.send(encoded(refusal(error)))
    except ImportError as error:
        client.send(encoded({"kind": "runtime", "error": f"{type(error).__name__}: {error}"}))
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answered(client: Client, order: Any) -> bytes:
    """Return the answer to an order; a full disk is an answer too."""
    try:
        if order["order"] == "push":
            client.store(os.path.basename(order["name"]), order["size"])
        elif order["order"] == "drop":
            os.remove(os.path.basename(order["name"]))
        elif order["order"] == "facts":
            # Asking for backends loads their libraries. OpenVINO's, loaded before a run fixes its
            # threads, takes one for each processor, and twice the time.
            return forked(client, lambda: ({"facts": facts()},), _FACTS_LIMIT_S)
        else:
            return forked(client, Work(order).answer, float(order["timeout_s"]))
        return encoded({})
    except OSError as error:
        return encoded(refusal(error))


def encoded(answer: dict[str, Any], *payload: bytes) -> bytes:
    """Return an answer and its payload as bytes."""
    head = json.dumps({**answer, "payload": [len(part) for part in payload]})
    return b"".join([head.encode(), b"\n", *payload])


def refusal(error: OSError) -> dict[str, Any]:
    """Return an error of the system as an answer."""
    kind = "disk" if error.errno in _FULL else "system"
    return {"kind": kind, "error": error.strerror or str(error)}


def forked(client: Client, work: Callable[[], tuple[Any, ...]], limit_s: float) -> bytes:
    """Work in a process of its own; return its answer, or how the process ended."""
    results, end = os.pipe()
    child = os.fork()
    if not child:
        try:
            client.close()
            os.close(results)
            # ExecuTorch logs from C++ to the file descriptor.
            os.dup2(os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            os._exit(run(work, end))
        finally:
            os._exit(1)
    os.close(end)
    data: bytes | None = None
    try:
        data = received(client, results, limit_s)
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


def run(work: Callable[[], tuple[Any, ...]], end: int) -> int:
    """Work in the new process; return its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        data = encoded(*work())
    except OSError as error:
        data = encoded(refusal(error))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        data = encoded({"failure": ["refused", f"{type(error).__name__}: {lines[0]}{logged()}"]})
    write(end, data)
    return 0


def received(client: Client, results: int, limit_s: float) -> bytes | None:
    """Return all that a process sends, or None if it takes too long.

    Raises:
        EOFError: The client is gone.
    """
    data = []
    end = time.monotonic() + limit_s
    while (rest := end - time.monotonic()) > 0:
        ready, _, _ = select.select([results, client.orders.fileno()], [], [], rest)
        # A client that waits for an answer sends nothing: its input has ended.
        if client.orders.fileno() in ready:
            raise EOFError
        if ready:
            data.append(os.read(results, _CHUNK))
            if not data[-1]:
                return b"".join(data)
    return None


def logged() -> str:
    """Return the first error that ExecuTorch logged in the run, in brackets."""
    with open(_LOG, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    # cpuinfo looks for facts that only the processors of phones have.
    lines = [
        line for line in lines if line.startswith(("[", "E ", "F ")) and "[cpuinfo" not in line
    ]
    errors = [line.partition("] ")[2].strip() for line in lines]
    return f" ({errors[0]})" if errors else ""


def ended(status: int) -> str:
    """Return how a process ended that should not have."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(number, f'signal {number}')}"
