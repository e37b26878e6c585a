"""Imports: what modules change in the process while they are imported, apart from who imports."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

# What `import` and `importlib.import_module` call for a module that is not imported yet; nothing
# documented tells when an import is over.
_BOOTSTRAP: Any = importlib._bootstrap


_LOCK = threading.Lock()


@contextmanager
def watched_imports(before: Callable[[], object], after: Callable[[str], object]) -> Iterator[None]:
    """Have imports of this thread told, outermost ones only.

    Args:
        before: Called before a module is imported.
        after: Called with its name when that is over, also if it failed.
    """
    watcher = _Watcher(before, after)
    with _LOCK:
        if not isinstance(_BOOTSTRAP._find_and_load, _FindAndLoad):
            _BOOTSTRAP._find_and_load = _FindAndLoad(_BOOTSTRAP._find_and_load)
        place: _FindAndLoad = _BOOTSTRAP._find_and_load
        place.watchers.append(watcher)
    try:
        yield
    finally:
        with _LOCK:
            place.watchers.remove(watcher)
            # Somebody else's may be around it, and lasts longer.
            if not place.watchers and _BOOTSTRAP._find_and_load is place:
                _BOOTSTRAP._find_and_load = place.original


@define(eq=False)
class _Watcher:
    """Who is told of the imports of a thread."""

    before: Callable[[], object]
    after: Callable[[str], object]
    thread: int = field(factory=threading.get_ident)
    busy: bool = False


@define(eq=False)
class _FindAndLoad:
    """Stands in Python's own place while there are watchers."""

    original: Any
    watchers: list[_Watcher] = field(factory=list)

    def __call__(self, name: str, import_: Any) -> Any:
        thread = threading.get_ident()
        told = [known for known in self.watchers if known.thread == thread and not known.busy]
        for watcher in told:
            watcher.busy = True
            watcher.before()
        try:
            return self.original(name, import_)
        finally:
            for watcher in told:
                watcher.after(name)
                watcher.busy = False
