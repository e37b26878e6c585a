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


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(name: str) -> Generator[None, Any, Any]:
    """Mark the rows of a table as a suite that its `slice` leaves out."""
    made = yield
    items = made if isinstance(made, list) else []
    rows = {item: item.callspec.id for item in items if hasattr(item, "callspec")}
    for mark in (mark for item in items[:1] for mark in item.iter_markers("slice")):
        few = {part: {item for item in rows if _has(rows[item], part)} for part in mark.args}
        assert all(few.values()), f"{name} has no rows for some of {mark.args}: {[*rows.values()]}"
        for item in rows.keys() - set().union(*few.values()):
            item.add_marker(pytest.mark.suite)
    return made


def _has(row: str, part: str) -> bool:
    """Return True if a part of a row's id is between hyphens there."""
    return f"-{part}-" in f"-{row}-"


def pytest_make_parametrize_id(val: object) -> str | None:
    """Call a dtype by its name, such as `float16`."""
    return str(val).removeprefix("torch.") if type(val).__name__ == "dtype" else None


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
