"""Loading: ExecuTorch's runtime in a process that only runs programs."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

_COMPILER = "executorch.exir"


def load_runtime() -> None:
    """Import executorch.runtime without ExecuTorch's compiler, which takes three times as long.

    The runtime needs one small file out of executorch.exir, and with it Python would import all
    of that package. Where that package is needed after all, it is imported as ever.
    """
    spec = None if _COMPILER in sys.modules else find_spec(_COMPILER)
    if spec is None or spec.submodule_search_locations is None:
        import_module("executorch.runtime")
        return
    bare = ModuleType(_COMPILER)
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules[_COMPILER] = bare
    try:
        import_module("executorch.runtime")
    except (AttributeError, ImportError):
        # A release whose runtime needs more of it, or one that can't be loaded at all.
        del sys.modules[_COMPILER]
        import_module("executorch.runtime")
    finally:
        if sys.modules.get(_COMPILER) is bare:
            del sys.modules[_COMPILER]
