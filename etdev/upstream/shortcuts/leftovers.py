"""Leftovers of each lowering that torch keeps until the process ends."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import graph_module

from etdev.upstream.fake_tensors import FakeTensorMode
from etdev.upstream.shortcuts.switch import Shortcut

LEFTOVERS = Shortcut(
    "no source of generated code and no calls of modules kept",
    (
        "torch.fx.graph_module._loader.eval_cache",
        "torch._subclasses.fake_tensor.FakeTensorMode.cache",
    ),
)


@contextmanager
def forgotten_code() -> Iterator[None]:
    """Forget the source of the graphs that are compiled meanwhile, and calls of modules.

    torch.fx keeps the source of hundreds of graphs a lowering, and torch the shapes of each call
    of a delegate, and with them its weights. Graphs run as before; only a traceback through one of
    them has no source lines.
    """
    if not LEFTOVERS.is_on:
        yield
        return
    sources, calls = graph_module._loader.eval_cache, FakeTensorMode.cache
    before, known = len(sources), len(calls)
    try:
        yield
    finally:
        # In the order in which they were added.
        for name in list(sources)[before:]:
            del sources[name]
            linecache.cache.pop(name, None)
        for call in list(calls)[known:]:
            if any(isinstance(value, torch.nn.Module) for value in call.key):
                del calls[call]
