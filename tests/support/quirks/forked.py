"""Forks for repros, some of which crash or hang, of a process that has imported ExecuTorch."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from attrs import evolve

from support.quirks.verdict import ERROR, Verdict

LIMIT_S = 60.0


def forked(judge: Callable[[str], Verdict], name: str, limit_s: float = LIMIT_S) -> Verdict:
    """Judge a repro in a fork of this process.

    Args:
        judge: Given the name; returns a verdict.
        name: Of the repro.
        limit_s: A verdict that takes longer is `hang`.
    """
    start, context = time.perf_counter(), multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    verdict, hangs = None, False
    with tempfile.TemporaryFile() as said:
        process = context.Process(target=_judge, args=(judge, name, there, said.fileno()))
        process.start()
        there.close()
        try:
            hangs = not here.poll(limit_s)
            verdict = None if hangs else here.recv()
        except EOFError:
            # It died; its exit code says of what.
            process.join()
        else:
            process.kill()
            process.join()
        said.seek(0)
        log = said.read().decode(errors="replace")
    seconds = time.perf_counter() - start
    if verdict is not None:
        return evolve(verdict, cause=_logged(log)) if verdict.kind == ERROR else verdict
    if hangs:
        return Verdict(name, "hang", f"no answer in {limit_s:g} s", "run", seconds)
    code = process.exitcode or 0
    if code >= 0:
        # An exception ended Python: the repro itself is at fault, or this code.
        return Verdict(name, "broken", log, "", seconds)
    return Verdict(name, "crash", signal.Signals(-code).name, "run", seconds, _logged(log))


def _judge(judge: Callable[[str], Verdict], name: str, there: Connection, said: int) -> None:
    """Judge in the fork; what it and ExecuTorch print goes to the file `said`."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    there.send(judge(name))


def _logged(log: str) -> str:
    """The first error that ExecuTorch's runtime logged, without the place in its code."""
    found = re.search(r"^[EF] \d.*? executorch:\S+\] (.*)$", log, re.MULTILINE)
    found = found or re.search(
        r"^\[(?:\w+\.cpp):\d+\] (.*(?:fail|Check|rror).*)$", log, re.MULTILINE
    )
    return found[1][:120] if found else ""
