"""The runner: executorch.runtime in a process of its own, with the C++ half of the backend."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from attrs import frozen

from etdev import RunError
from etdev.pte.artifact import MethodArtifact
from etdev.runtime.child import Child
from etdev.runtime.runners import PythonRunner
from example_npu.plugin import BACKEND_ID

LIBRARY = Path(__file__).with_name("libexample_npu.so")


def load_program(source: Path | bytes, **options: Any) -> Any:
    """Load a program; called in the runner's process."""
    from executorch.runtime import Runtime

    # It links libexecutorch, which the runtime has loaded, and registers itself there. A library
    # that is loaded already is not loaded again.
    ctypes.CDLL(str(LIBRARY))
    return Runtime.get().load_program(source, **options)


def missing(method: MethodArtifact) -> tuple[list[str], list[str]]:
    """Return the backends and kernels that this runtime lacks for a method."""
    known = (BACKEND_ID, "XnnpackBackend")
    return [d.backend_id for d in method.delegates if d.backend_id not in known], []


@frozen(eq=False)
class ExampleRunner(PythonRunner):
    """The runner, which says how to build its library where that is missing."""

    def prepare(self) -> None:
        """Start its process."""
        if not LIBRARY.exists():
            cure = "build runtime/CMakeLists.txt, and install it into the package"
            raise RunError(self.name, f"{LIBRARY.name} is not built", cure)
        super().prepare()


RUNNER = ExampleRunner("example-npu", load_program, Child("example-npu"), missing)
