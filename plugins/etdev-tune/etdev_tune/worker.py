"""The worker: runs programs on a target, each in a process of its own.

It needs Python, ExecuTorch and a POSIX system, and no etdev: a runner sends this file and those
that it imports over and has them run. Orders come in on its standard input and answers go out
on its standard output, both a line of JSON and the bytes that this line announces:

    {"order": "facts"}                               what the target is
    {"order": "push", "name": NAME, "size": SIZE}    SIZE bytes follow, for a file
    {"order": "drop", "name": NAME}                  a file that isn't needed any more
    {"order": "run", ...}                            as `Work` explains

An answer has either what was asked for, or an `error` with its `kind`; `payload` has the sizes of
what follows it.

ExecuTorch is loaded once, and every run is a fork that has loaded no program yet, so that it is a
process of its own without waiting for imports. The files lie in a folder that is removed when the
input ends, whatever ends it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable

from etdev.runtime.loading import load_runtime
from etdev_tune.target.facts import facts
from etdev_tune.target.wire import Client, refusal, wire
from etdev_tune.target.work import Work

HELLO = "etdev-worker 1"
_LOG = "run.log"
_FACTS_LIMIT_S = 20.0


def main() -> None:
    """Answer orders until there are no more."""
    client = Client(os.dup(0), os.dup(1))
    # What libraries print must not be taken for an answer, nor may they read orders.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    client.send(b"\n" + HELLO.encode() + b"\n")
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="etdev-worker-")
        os.chdir(folder)
        # torch makes folders for its caches too.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        # The threads of numpy's OpenBLAS would not be there after a fork.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        load_runtime()
        client.send(wire({"folder": folder}))
        serve(client)
    except OSError as error:
        client.send(wire(refusal(error)))
    except ImportError as error:
        client.send(wire({"kind": "runtime", "error": f"{type(error).__name__}: {error}"}))
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve(client: Client) -> None:
    """Answer every order; a full disk is an answer too."""
    while True:
        order = client.order()
        try:
            if order["order"] == "push":
                client.store(os.path.basename(order["name"]), order["size"])
                client.send(wire({}))
            elif order["order"] == "drop":
                os.remove(os.path.basename(order["name"]))
                client.send(wire({}))
            elif order["order"] == "facts":
                client.send(forked(client, known_facts, _FACTS_LIMIT_S))
            else:
                client.send(forked(client, Work(order).answer, float(order["timeout_s"])))
        except OSError as error:
            client.send(wire(refusal(error)))


def known_facts() -> bytes:
    """What the target is.

    To ask whether a backend is there loads its libraries, and OpenVINO's, loaded before a run fixes
    its threads, takes as many as there are processors, and twice the time.
    """
    return wire({"facts": facts()})


def forked(client: Client, work: Callable[[], bytes], limit_s: float) -> bytes:
    """Work in a process of its own; its answer, or how it ended."""
    results, end = os.pipe()
    child = os.fork()
    if not child:
        for inherited in (client.orders, client.answers, results):
            os.close(inherited)
        # ExecuTorch logs from C++ to the file descriptor.
        os.dup2(os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        os._exit(run(work, end))
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
        return wire({"failure": ["hang", f"took longer than {limit_s:g} s"]})
    if status:
        return wire({"failure": ["crash", ended(status) + logged()]})
    return data


def run(work: Callable[[], bytes], end: int) -> int:
    """What the new process does; its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        data = work()
    except OSError as error:
        data = wire(refusal(error))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        data = wire({"failure": ["refused", f"{type(error).__name__}: {lines[0]}{logged()}"]})
    Client(-1, end).send(data)
    return 0


def received(client: Client, results: int, limit_s: float) -> bytes | None:
    """All that a process sends, or None if it takes too long; EOFError if the client is gone."""
    data = []
    end = time.monotonic() + limit_s
    while (rest := end - time.monotonic()) > 0:
        ready, _, _ = select.select([results, client.orders], [], [], rest)
        # A client that waits for an answer sends nothing, so this is the end of its input.
        if client.orders in ready:
            raise EOFError
        if ready:
            data.append(os.read(results, 1 << 20))
            if not data[-1]:
                return b"".join(data)
    return None


def logged() -> str:
    """The first error that ExecuTorch logged in the run, in brackets."""
    with open(_LOG, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    # It looks for facts on the processor that only phones have.
    lines = [
        line for line in lines if line.startswith(("[", "E ", "F ")) and "[cpuinfo" not in line
    ]
    errors = [line.partition("] ")[2].strip() for line in lines]
    return f" ({errors[0]})" if errors else ""


def ended(status: int) -> str:
    """How a process ended that should not have."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(number, f'signal {number}')}"


if __name__ == "__main__":
    main()
