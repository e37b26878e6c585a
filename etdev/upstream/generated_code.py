"""The source code and the shapes of graphs that torch would keep as long as the process lives.

A lowering compiles hundreds of graphs, and torch.fx keeps their source. torch keeps the shapes of
each call of a delegate, too, and with them the delegate, its compiled bytes and its weights.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.graph_module import _loader


@contextmanager
def forgotten_code() -> Iterator[None]:
    """Forget the source of the graphs that are compiled meanwhile, and calls of modules.

    They run as before; only a traceback through one of them has no source lines.
    """
    before, known = len(_loader.eval_cache), len(FakeTensorMode.cache)
    try:
        yield
    finally:
        # In the order in which they were added.
        for name in list(_loader.eval_cache)[before:]:
            del _loader.eval_cache[name]
            linecache.cache.pop(name, None)
        for call in list(FakeTensorMode.cache)[known:]:
            if any(isinstance(value, torch.nn.Module) for value in call.key):
                del FakeTensorMode.cache[call]
