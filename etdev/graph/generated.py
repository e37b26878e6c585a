"""Generated code: torch.fx keeps the source of every graph that it ever compiled; ours goes again.

A lowering compiles hundreds of graphs, and a process that lowers many models would grow with each.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager

# torch has no public way to its cache of sources; tests/whole/test_memory.py holds what this needs.
from torch.fx.graph_module import _loader


@contextmanager
def forgotten_code() -> Iterator[None]:
    """Forget the source of the graphs that are compiled meanwhile.

    They run as before; only a traceback through one of them has no source lines.
    """
    before = len(_loader.eval_cache)
    try:
        yield
    finally:
        # In the order in which they were added.
        for name in list(_loader.eval_cache)[before:]:
            del _loader.eval_cache[name]
            linecache.cache.pop(name, None)
