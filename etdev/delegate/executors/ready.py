"""Ready: how a worker process begins. Nothing here imports torch until it is."""

from __future__ import annotations

import logging
import signal
import sys
import warnings

from etdev.upstream.collector import loading
from etdev.upstream.logs import set_log_level


def prepare(path: list[str]) -> None:
    """Make a worker ready.

    Args:
        path: Where the process that started it imports from.
    """
    # Ctrl-C is for the process that started us; it ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = path
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    with loading():
        set_log_level(logging.CRITICAL)
        import etdev.delegate.executors.work  # noqa: F401
