"""Forks of a process that has imported ExecuTorch, for work that may crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from attrs import frozen


@frozen(eq=False)
class Fork:
    """A fork that ended.

    Args:
        result: What its work told at last; None if it died or hung before.
        stage: The last text that it told.
        hangs: It took longer than its limit.
        code: Its exit code, as `subprocess` has it.
        log: What it and ExecuTorch printed.
        seconds: The time that it took.
    """

    result: Any
    stage: str
    hangs: bool
    code: int
    log: str
    seconds: float

    @property
    def signal(self) -> str:
        """The name of the signal that it died of; empty without one."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    @property
    def cause(self) -> str:
        """The first error that ExecuTorch's runtime logged, without the place in its code."""
        found = re.search(r"^[EF] \d.*? executorch:\S+\] (.*)$", self.log, re.MULTILINE)
        found = found or re.search(
            r"^\[(?:\w+\.cpp):\d+\] (.*(?:fail|Check|rror).*)$", self.log, re.MULTILINE
        )
        return found[1] if found else ""


def forked(work: Callable[[Callable[[Any], None]], None], limit_s: float, stage: str = "") -> Fork:
    """Work in a fork of this process.

    Args:
        work: Given a function that tells a stage, a text, or the result, anything else.
        limit_s: Work that takes longer is ended.
        stage: The stage that it begins with.
    """
    start, context = time.perf_counter(), multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    result, hangs = None, False
    with tempfile.TemporaryFile() as said:
        process = context.Process(target=_work, args=(work, there, said.fileno()))
        process.start()
        there.close()
        try:
            while result is None and not hangs:
                hangs = not here.poll(max(0.0, limit_s - (time.perf_counter() - start)))
                told = None if hangs else here.recv()
                stage, result = (told, None) if isinstance(told, str) else (stage, told)
        except EOFError:
            # It died; its exit code says of what.
            process.join()
        else:
            process.kill()
            process.join()
        said.seek(0)
        log = said.read().decode(errors="replace")
    seconds = time.perf_counter() - start
    return Fork(result, stage, hangs, process.exitcode or 0, log, seconds)


def _work(work: Callable[[Callable[[Any], None]], None], there: Connection, said: int) -> None:
    """Work in the fork; what it and ExecuTorch print goes to the file `said`."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    work(there.send)
