"""Forks of a process that has imported ExecuTorch, for work that may crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attrs import frozen

from etdev.runtime.ending import first_error

# Given a stage, a text, or the result, anything else.
Tell = Callable[[Any], None]
# A fork that computes nothing ends after this many times its limit, also if its parent is gone.
_WAITING = 2.0
_TIMERS = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}


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
        return first_error(self.log.splitlines())


def forked(work: Callable[[Tell], None], limit_s: float, stage: str = "") -> Fork:
    """Work in a fork of this process.

    Args:
        work: Given a function that tells a stage or the result.
        limit_s: Work that takes more time of processors hangs, or if it waits, twice as much.
            On a busy machine it is as far from its limit as on an idle one.
        stage: The stage that it begins with.
    """
    start, context = time.perf_counter(), multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    result = None

    def run() -> None:
        for number, timer in _TIMERS.items():
            signal.signal(number, signal.SIG_DFL)
            signal.setitimer(timer, limit_s * (_WAITING if number == signal.SIGALRM else 1.0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        work(there.send)

    with tempfile.TemporaryFile() as log:
        process = context.Process(target=run)
        process.start()
        there.close()
        # If it died, its exit code says of what.
        with suppress(EOFError):
            while result is None:
                told = here.recv()
                stage, result = (told, None) if isinstance(told, str) else (stage, told)
            process.kill()
        process.join()
        log.seek(0)
        text = log.read().decode(errors="replace")
    code, seconds = process.exitcode or 0, time.perf_counter() - start
    return Fork(result, stage, -code in _TIMERS, code, text, seconds)
