"""The setting of all tests, those of the plugins too: no cache, and less of torch's own time."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator

import pytest

from etdev.upstream.collector import loading

# Tests compile what they test; those of the cache name a folder.
os.environ["ETDEV_CACHE"] = "off"

# What a shell starts in the background ignores Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import ExecuTorch as the command does, where tests run and not where they are handed out."""
    config = session.config
    if hasattr(config, "workerinput") or getattr(config.option, "dist", "no") == "no":
        with loading():
            import executorch.exir  # noqa: F401


def pytest_collection_finish() -> None:
    """Keep collections off what the tests import, which was a fifth of their time."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _collections_are_quick() -> Iterator[None]:
    """Keep collections off what is still there after a file, such as what torch knows of ops.

    After two thousand tests that is a few million objects, and CudaBackend and Inductor collect
    several times in each lowering.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Free what C++ would otherwise report as leaked when Python ends."""
    gc.unfreeze()
    gc.collect()


class _Callables(type):
    """Knows what is callable, as `collections.abc.Callable` does."""

    def __instancecheck__(cls, value: object) -> bool:
        return callable(value)


class _Unread(metaclass=_Callables):
    """In place of `Callable`, for annotations that nobody reads."""

    def __class_getitem__(cls, _: object) -> type[_Unread]:
        return cls


@pytest.fixture(scope="module", autouse=True)
def _torch_is_quick() -> Iterator[None]:
    """Keep torch's list of decomposable ops for the tests of a file, and its annotations unmade.

    Every decomposition asks for the list several times, and torch goes through all its namespaces
    each time, as ops may have been registered; then it defines thousands of functions, with
    annotations that take longer than they do. Together that is half of a small model's plan.
    """
    import torch
    from torch._export import utils

    name = "_collect_all_valid_cia_ops_for_namespace"
    with pytest.MonkeyPatch.context() as patch:
        if listed := getattr(utils, name, None):
            patch.setattr(utils, name, functools.cache(listed))
        if hasattr(torch._ops, "Callable"):
            patch.setattr(torch._ops, "Callable", _Unread)
        yield
