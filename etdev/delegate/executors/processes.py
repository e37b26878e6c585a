"""Worker processes on this machine; importing this file does not import torch."""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from concurrent.futures import Executor

from etdev.upstream.process import loading, set_log_level


def start_processes(count: int) -> Executor:
    """Return an executor whose processes import torch and ExecuTorch; they start with a first call.

    loky starts them afresh: torch's threads don't survive a fork, and the user's `__main__` must
    not run again.
    """
    from loky import ProcessPoolExecutor
    from loky.backend import get_context

    executor: Executor = ProcessPoolExecutor(
        count, context=get_context("loky"), initializer=_prepare, initargs=(list(sys.path),)
    )
    return executor


def _prepare(path: list[str]) -> None:
    """Import everything that compiling needs, with the `sys.path` of the starting process."""
    # Ctrl-C is for the process that started this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = path
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    with loading():
        set_log_level(logging.CRITICAL)
        import etdev.delegate.executors.request  # noqa: F401
