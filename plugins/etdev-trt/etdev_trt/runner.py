"""The runner of torch-tensorrt's runtime: ExecuTorch's, built with TensorRTBackend and CudaBackend.

Its package is torch-tensorrt-executorch-runtime. Version 0.1 replaces `executorch.runtime` in a
process that has not loaded that yet, so it has a process of its own. Version 0.2 adds TensorRT's
backend to the installed `executorch.runtime` where it is imported (pytorch/TensorRT#4567, read).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from packaging.version import Version

from etdev.errors import RunError, install_hint
from etdev.pte.artifact import MethodArtifact
from etdev.runtime.child import COMMAND, Child
from etdev.runtime.runners import PYTHON, PythonRunner

PACKAGE = "torch_tensorrt_executorch_runtime"
BACKENDS = ("TensorRTBackend", "CudaBackend", "XnnpackBackend")
# Kernels that it is built without.
_LACKING = "quantized_decomposed::"


@frozen(eq=False)
class Method:
    """A method of a loaded program."""

    module: Any
    name: str

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Call it with tensors on the CPU, and return such tensors."""
        outputs: Sequence[Any] = self.module.run_method(self.name, tuple(inputs))
        return outputs


@frozen(eq=False)
class Program:
    """A loaded program, and its bytes, which the runtime goes on reading."""

    module: Any
    data: bytes

    def load_method(self, name: str) -> Method:
        """Return a method."""
        return Method(self.module, name)


def load_program(source: Path | bytes, **options: Any) -> Any:
    """Load a program; with version 0.1 by the Module API, as torch-tensorrt does.

    The other API of that version plans all memory on the host, where device memory is asked for.

    Raises:
        RuntimeError: A .ptd or a trace is asked for, which version 0.1 has not.
    """
    activate = getattr(importlib.import_module(PACKAGE), "activate", None)
    if activate is None:
        return PYTHON.loader(source, **options)
    if options:
        raise RuntimeError(f"{PACKAGE} has no {', '.join(options)}")
    data = source if isinstance(source, bytes) else source.read_bytes()
    return Program(activate()._load_for_executorch_from_buffer(data), data)


def replaces() -> bool:
    """Return True if the installed version replaces executorch.runtime, as those before 0.2 do."""
    return Version(importlib.metadata.version(PACKAGE)) < Version("0.2")


def missing(method: MethodArtifact) -> tuple[list[str], list[str]]:
    """Return the backends and kernels that it lacks for a method."""
    if not replaces():
        lacking, kernels = PYTHON.missing(method)
        return [name for name in lacking if name != BACKENDS[0]], kernels
    backends = dict.fromkeys(delegate.backend_id for delegate in method.delegates)
    return (
        [name for name in backends if name not in BACKENDS],
        [name for name in method.operators if name.startswith(_LACKING)],
    )


class TensorRTRunner(PythonRunner):
    """The runner, which names the package to install where it is missing."""

    def prepare(self) -> None:
        """Start its process.

        Raises:
            RunError: The runtime isn't installed.
        """
        if importlib.util.find_spec(PACKAGE) is None:
            name = PACKAGE.replace("_", "-")
            cure = install_hint("etdev-trt", "runtime")
            raise RunError("trt", f"{name} is not installed", cure)
        super().prepare()


# Not executorch.runtime, which its package replaces.
_CHILD = Child("torch-tensorrt's runtime", command=(*COMMAND, "torch"))
RUNNER = TensorRTRunner("tensorrt", load_program, _CHILD, missing)
