"""The setting of all tests, also of the plugins: no cache, and fewer collections of garbage."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from etdev.errors import LoweringError
from etdev.upstream.shortcuts.collector import loading

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Skip what calls `etdev.partitioner()` where this ExecuTorch has no place for it."""
    try:
        return (yield)
    except LoweringError as error:
        from executorch.exir.backend.partitioner import Partitioner

        has_place = hasattr(Partitioner, "transform_for_pre_decomposition")
        if has_place or error.who != "partitioner" or "executorch>=1.5" not in error.cure:
            raise
        pytest.skip(f"ExecuTorch 1.4: {error.what}")


def pytest_collection_finish() -> None:
    """Keep collections off what the tests import, which was a fifth of their time, and rarer."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


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
    """Have Python's last collection free what C++ would otherwise report as leaked.

    pytest collects twice more before, which takes seconds where nothing is frozen.
    """
    atexit.register(gc.unfreeze)
