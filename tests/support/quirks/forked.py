"""A process that has imported ExecuTorch once, and forks for each repro: some crash or hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from attrs import asdict

LIMIT_S = 60.0
Judge = Callable[[str], dict[str, Any]]


def serve(judge: Judge, lines: Iterator[str], out: TextIO) -> None:
    """Judge the repro that each line names, and write the verdict as a line of JSON."""
    for line in lines:
        out.write(json.dumps(forked(judge, line.strip())) + "\n")
        out.flush()


def forked(judge: Judge, name: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Judge a repro in a fork of this process.

    Args:
        judge: Given the name; returns a verdict as a dict.
        name: Of the repro.
        limit_s: A verdict that takes longer is `hang`.
    """
    from support.quirks.verdict import Verdict

    start = time.perf_counter()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if not pid:
            _judge(judge, name, writer, said.fileno())
        os.close(writer)
        answer = _read(reader, start + limit_s)
        if answer is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(reader)
        said.seek(0)
        log = said.read().decode(errors="replace")
    seconds = time.perf_counter() - start
    if answer:
        verdict: dict[str, Any] = json.loads(answer)
        if verdict["kind"] == "error":
            verdict["cause"] = _logged(log)
        return verdict
    if answer is None:
        return asdict(Verdict(name, "hang", f"no answer in {limit_s:g} s", "run", seconds))
    if not os.WIFSIGNALED(status):
        # An exception ended Python: the repro itself is at fault, or this code.
        return asdict(Verdict(name, "broken", log, "", seconds))
    detail = signal.Signals(os.WTERMSIG(status)).name
    return asdict(Verdict(name, "crash", detail, "run", seconds, _logged(log)))


def _judge(judge: Judge, name: str, writer: int, said: int) -> None:
    """Judge in the fork, which ends here."""
    code = 1
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.write(writer, json.dumps(judge(name)).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        # Without Python's own end, which would flush what the parent has buffered.
        os._exit(code)


def _read(reader: int, deadline: float) -> bytes | None:
    """What the fork writes until it ends; None if it takes too long."""
    answer = b""
    while (left := deadline - time.perf_counter()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        piece = os.read(reader, 1 << 16)
        if not piece:
            return answer
        answer += piece
    return None


def _logged(log: str) -> str:
    """The first error that ExecuTorch's runtime logged, without the place in its code."""
    found = re.search(r"^[EF] \d.*? executorch:\S+\] (.*)$", log, re.MULTILINE)
    found = found or re.search(
        r"^\[(?:\w+\.cpp):\d+\] (.*(?:fail|Check|rror).*)$", log, re.MULTILINE
    )
    return found[1][:120] if found else ""


def main(judge: Judge, warm_up: Callable[[], None]) -> None:
    """Judge the repros that the command line names, or those that stdin does, line by line."""
    warm_up()
    if sys.argv[1:]:
        from support.quirks.verdict import Verdict

        for name in sys.argv[1:]:
            verdict = Verdict(**forked(judge, name))
            print(f"{name:40} {verdict.seconds:5.1f} s {verdict.stage:5} {verdict}", flush=True)
        return
    out = os.fdopen(os.dup(1), "w")
    serve(judge, iter(sys.stdin.readline, ""), out)
