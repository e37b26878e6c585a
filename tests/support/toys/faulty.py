"""Partitioners of a backend that goes wrong at run time: XNNPACK, with faults in some delegates.

The payload of a delegate with a fault has its name behind XNNPACK's own bytes, where `Method`
finds it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.runtime import Method, Runtime

# A weight that the backend gets wrong.
WEIGHT = 0.6789
_compile, _load, _execute = XnnpackBackend.preprocess, Runtime.load_program, Method.execute


class _Faulty(XnnpackPartitioner):
    """A partitioner of a backend that does something else for tanh."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        XnnpackBackend.preprocess = staticmethod(self._compiled)

    def _compiled(self, program: Any, specs: Any) -> Any:
        result = _compile(program, specs)
        if self.is_at_fault(program):
            result.processed_bytes += f"fault: {self.fault}".encode()
        return result

    def is_at_fault(self, program: Any) -> bool:
        """Return True if the backend goes wrong with a delegate."""
        return any("aten.tanh" in str(node.target) for node in program.graph.nodes)


class Hanging(_Faulty):
    """The backend does not return."""

    fault = "hang"


class Crashing(_Faulty):
    """The backend crashes."""

    fault = "crash"


class Slow(_Faulty):
    """The backend takes 50 ms."""

    fault = "slow"


class Weighted(_Faulty):
    """The backend is off by 1 if it has a certain weight."""

    fault = "wrong"

    def is_at_fault(self, program: Any) -> bool:
        """Return True if a weight is the one that the backend gets wrong."""
        return any(bool((weight == WEIGHT).any()) for weight in program.state_dict.values())


def _loaded(runtime: Runtime, path: Path | str, *given: Any, **more: Any) -> Any:
    """Load a program, whose methods then run with its fault."""
    fault = Path(path).read_bytes().partition(b"fault: ")[2]

    def execute(method: Method, inputs: Any) -> Any:
        if fault.startswith(b"crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep({b"hang": 1e6, b"slow": 0.05}.get(fault[:4], 0.0))
        off = fault.startswith(b"wrong")
        return [output + off for output in _execute(method, inputs)]

    Method.execute = execute
    return _load(runtime, path, *given, **more)


Runtime.load_program = _loaded
