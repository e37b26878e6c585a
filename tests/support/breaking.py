"""A flow that breaks in a way of its choice, for the process that tries cases."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from attrs import frozen
from etdev_reduce.flows import PORTABLE


@frozen
class Breaking:
    """Lowers with portable kernels, but does what `kind` says."""

    kind: str

    @property
    def name(self) -> str:
        """Its name in reports."""
        return "breaking"

    def lower(self, program: Any) -> bytes:
        """Lower a program, or not."""
        if self.kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.kind == "hang":
            time.sleep(600)
        if self.kind == "error":
            raise ValueError("node aten_add_3 is no good")
        if self.kind == "missing":
            raise ModuleNotFoundError("No module named 'npu'")
        return PORTABLE.lower(program)
