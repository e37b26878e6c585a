"""How a worker process begins; nothing in this file imports torch until `prepare` is called."""

from __future__ import annotations

import logging
import signal
import sys
import warnings

from etdev.upstream.collector import loading
from etdev.upstream.logs import set_log_level


def prepare(path: list[str]) -> None:
    """Import all that compiling needs.

    Args:
        path: Where the process that started this one imports from.
    """
    # Ctrl-C is for the process that started this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = path
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    with loading():
        set_log_level(logging.CRITICAL)
        import etdev.delegate.executors.request  # noqa: F401
