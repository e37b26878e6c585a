"""Import of ExecuTorch's runtime into a process that only runs programs."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

_COMPILER = "executorch.exir"


def load_runtime() -> None:
    """Import executorch.runtime without ExecuTorch's compiler, which takes three times as long.

    The runtime needs one small file of executorch.exir, and Python would import that whole package
    for it. A release whose runtime needs more of the package gets all of it.
    """
    spec = None if _COMPILER in sys.modules else find_spec(_COMPILER)
    if spec is None or spec.submodule_search_locations is None:
        import_module("executorch.runtime")
        return
    bare = ModuleType(_COMPILER)
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules[_COMPILER] = bare
    try:
        with suppress(AttributeError, ImportError):
            import_module("executorch.runtime")
    finally:
        if sys.modules.get(_COMPILER) is bare:
            del sys.modules[_COMPILER]
    import_module("executorch.runtime")
