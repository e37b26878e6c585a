"""Imports: what modules change in the process while they are imported, apart from who imports."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What `import` and `importlib.import_module` call for a module that is not imported yet; nothing
# documented tells when an import is over.
_BOOTSTRAP: Any = importlib._bootstrap


@contextmanager
def watched_imports(before: Callable[[], object], after: Callable[[str], object]) -> Iterator[None]:
    """Have imports of this thread told, outermost ones only.

    Args:
        before: Called before a module is imported.
        after: Called with its name when that is over, also if it failed.
    """
    original, thread = _BOOTSTRAP._find_and_load, threading.get_ident()
    busy = over = False

    def find_and_load(name: str, import_: Any) -> Any:
        nonlocal busy
        if busy or over or threading.get_ident() != thread:
            return original(name, import_)
        busy = True
        before()
        try:
            return original(name, import_)
        finally:
            after(name)
            busy = False

    _BOOTSTRAP._find_and_load = find_and_load
    try:
        yield
    finally:
        over = True
        # Another thread's may be around it, and lasts longer.
        if _BOOTSTRAP._find_and_load is find_and_load:
            _BOOTSTRAP._find_and_load = original
