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

import psutil
from attrs import define, frozen

from etdev.runtime.ending import first_error

# Given a stage, a text, or the result, anything else.
Tell = Callable[[Any], None]
# Seconds between two looks at a fork.
_TICK_S = 0.5
# A fork whose parent is gone ends after this many times its limit.
_ORPHANED = 10


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


@define(eq=False)
class Clock:
    """A clock of a process that stands still while the process waits for a processor.

    On a busy machine a program is as far from its limit as on an idle one.

    Args:
        process: The process.
        seconds: The time in which it computed, or waited for something else.
    """

    process: psutil.Process
    seconds: float = 0.0
    _used: float = 0.0

    def advance(self, passed_s: float) -> None:
        """Advance by what the process had of the last seconds."""
        # It may end meanwhile.
        with suppress(psutil.Error):
            before, self._used = self._used, sum(self.process.cpu_times()[:2])
            is_ready = self.process.status() == psutil.STATUS_RUNNING
            self.seconds += min(passed_s, self._used - before) if is_ready else passed_s


def forked(work: Callable[[Tell], None], limit_s: float, stage: str = "") -> Fork:
    """Work in a fork of this process.

    Args:
        work: Given a function that tells a stage or the result.
        limit_s: Work that takes longer, by its `Clock`, hangs and is ended.
        stage: The stage that it begins with.
    """
    start, context = time.perf_counter(), multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    result, hangs = None, False

    def run() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(limit_s * _ORPHANED))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        work(there.send)

    with tempfile.TemporaryFile() as log:
        process = context.Process(target=run)
        process.start()
        clock = Clock(psutil.Process(process.pid))
        there.close()
        # If it died, its exit code says of what.
        with suppress(EOFError):
            while result is None and not hangs:
                if here.poll(_TICK_S):
                    told = here.recv()
                    stage, result = (told, None) if isinstance(told, str) else (stage, told)
                else:
                    clock.advance(_TICK_S)
                    hangs = clock.seconds > limit_s
            process.kill()
        process.join()
        log.seek(0)
        text = log.read().decode(errors="replace")
    seconds = time.perf_counter() - start
    return Fork(result, stage, hangs, process.exitcode or 0, text, seconds)
