"""Processes of etdev's own; importing this file does not import torch."""

from __future__ import annotations

import logging
import signal
import warnings
from concurrent.futures import Executor

from etdev.upstream.shortcuts.collector import loading


def hide_logs() -> None:
    """Hide the logs of torch and other libraries; imports torch."""
    # With a handler on the root logger, the libraries' calls of basicConfig have no effect.
    logging.getLogger().addHandler(logging.NullHandler())
    import torch

    # Errors are hidden, too: torch logs the traceback of each exception that it raises.
    torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined]


def start_process() -> Executor:
    """Return an executor with one process, which imports torch and ExecuTorch at its first call.

    loky starts it afresh: torch's threads don't survive a fork, and the user's `__main__` must not
    run again.
    """
    from loky import ProcessPoolExecutor

    executor: Executor = ProcessPoolExecutor(1, initializer=_prepare)
    return executor


def stop_process(executor: Executor) -> None:
    """End the process of an executor, whatever it does."""
    # loky's own argument.
    executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]


def _prepare() -> None:
    """Import everything that compiling needs."""
    # Ctrl-C is for the process that started this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    with loading():
        hide_logs()
        import etdev.delegate.executors.request  # noqa: F401
