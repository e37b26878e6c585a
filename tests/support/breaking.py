"""A flow that breaks in a way of its choice, for the process that tries cases."""

from __future__ import annotations

import os
import signal
import time

from etdev_reduce.flows import PORTABLE, Flow


def breaking(kind: str) -> Flow:
    """Return a flow that lowers with portable kernels, but does what `kind` says."""
    before = f"from support import breaking\nbreaking.lower({kind!r})\n"
    return Flow("breaking", "breaking", f"{before}{PORTABLE.statements}")


def lower(kind: str) -> None:
    """Do what a kind of flow does before it lowers."""
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(600)
    if kind == "error":
        raise ValueError("node aten_add_3 is no good")
    if kind == "missing":
        raise ModuleNotFoundError("No module named 'npu'")
