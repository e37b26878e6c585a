"""Backends and kernels that this machine's runtime has, and those that a .pte needs.

torch is imported where a program is at hand, since `etdev check` asks in another process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, redirect_stderr
from importlib import import_module
from typing import TYPE_CHECKING

from etdev.errors import RunError, warn_or_raise
from etdev.pte.artifact import MethodArtifact

if TYPE_CHECKING:
    from torch.fx import Node

# ExecuTorch ships these kernels in a library of their own.
_QUANTISED = "quantized_decomposed::"


def missing(method: MethodArtifact) -> tuple[list[str], list[str]]:
    """Return the backends and kernels that this machine's runtime lacks for a method."""
    from executorch.runtime import Runtime

    for module in kernel_modules(method):
        import_module(module)
    runtime = Runtime.get()
    known = runtime.operator_registry.operator_names
    backends = dict.fromkeys(delegate.backend_id for delegate in method.delegates)
    with logs_apart():
        absent = [name for name in backends if not runtime.backend_registry.is_available(name)]
    return absent, [name for name in method.operators if name not in known]


def logs_apart() -> AbstractContextManager[object]:
    """Return a context in which ExecuTorch's logs go where C++ writes, not to sys.stderr."""
    return redirect_stderr(sys.__stderr__ or sys.stderr)


def has_kernel(node: Node) -> bool:
    """Return True if this machine's runtime has a kernel for the op of an edge-dialect node."""
    from executorch.runtime import Runtime

    try:
        name = node.target.to_out_variant().name()  # type: ignore[union-attr]
    # A target without an out variant.
    except (AttributeError, RuntimeError):
        return False
    return name in Runtime.get().operator_registry.operator_names


def kernel_modules(*methods: MethodArtifact) -> Sequence[str]:
    """Return the modules that load kernels of quantised ops, as ExecuTorch doesn't, if needed."""
    names = [name for method in methods for name in method.operators]
    needed = any(name.startswith(_QUANTISED) for name in names)
    return ["executorch.kernels.quantized"] if needed else []


def warn_of_missing(methods: Sequence[MethodArtifact], strict: bool) -> None:
    """Warn of every op that the runtime has no kernel for, or refuse it under `strict`.

    Copies between devices are left out, because their kernels come with the device's runtime.
    """
    try:
        import executorch.runtime  # noqa: F401
    except ImportError:
        # ExecuTorch can be built without its runtime for Python.
        return
    for method in methods:
        _, lacking = missing(method)
        kernels = [name for name in lacking if not name.startswith("et_copy::")]
        if not kernels:
            continue
        what = f"the runtime has no kernel {', '.join(kernels)}"
        cure = "the .pte fails to load without it; leave out that op, or give it to a plugin"
        warn_or_raise(RunError(f"method {method.name!r}", what, cure), strict)


def op_of(kernel: str) -> str:
    """Return the op of a kernel without its overload: `aten.add` for `aten::add.out`."""
    return kernel.partition(".")[0].replace("::", ".")
