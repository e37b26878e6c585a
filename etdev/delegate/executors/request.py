"""The request to compile a call, and the reply of the worker."""

from __future__ import annotations

import faulthandler
import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import evolve, frozen

from etdev.delegate.cache.cache import Cache, Memory
from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.key import settings
from etdev.delegate.compiler_calls import context
from etdev.delegate.executors.parcel import LocalOnly, unpack_call, unpack_plugin
from etdev.errors import CompileError, EtdevError, first_line
from etdev.schema.caching import CacheSettings

# Passes of backends keep state in their modules, so that two threads would disturb each other.
ONE_AT_A_TIME = threading.RLock()


@frozen
class Request:
    """A call that a worker is asked to compile.

    Args:
        plugin: Its plugin and device, as `pack` returns them.
        call: The rest of it.
        key: The cache key that it must have in the worker, too.
        settings: Settings of torch that compilers may read.
        cache: Where the worker keeps what it compiles; None for nowhere.
        exits: True if the worker is a process of etdev's, which ends when it compiles for too long.
    """

    plugin: bytes
    call: bytes
    key: str
    settings: Mapping[str, Any]
    cache: CacheSettings | None
    exits: bool = False


class WorkerError(Exception):
    """An error that a backend raised in a worker, as one line and as the tracebacks of all."""

    def __init__(self, line: str, trace: str) -> None:
        super().__init__(line, trace)
        self.line, self.trace = line, trace

    def __str__(self) -> str:
        return f"{self.line}\n\n{self.trace}"


@frozen
class Reply:
    """A worker's answer, with its wall time in seconds.

    It has the results as an entry of the cache, or why the worker can't compile the call, or the
    error of the backend with its cause.
    """

    entry: bytes = b""
    local_only: str = ""
    error: CompileError | None = None
    cause: WorkerError | None = None
    seconds: float = 0.0


def answer(request: Request) -> Reply:
    """Compile a request; called in a worker."""
    start = time.perf_counter()
    with ONE_AT_A_TIME:
        before = settings()
        try:
            _set(request.settings)
            reply = Reply(_compiled(request))
        except CompileError as error:
            trace = f"in {_process()}:\n{''.join(traceback.format_exception(error))}"
            line = first_line(error.__cause__ or error)
            reply = Reply(error=error, cause=WorkerError(line, trace))
        except (LocalOnly, Uncacheable, EtdevError) as error:
            # An EtdevError here is the fault of this machine: the plugin is unfit.
            reply = Reply(local_only=str(error))
        finally:
            _set(before)
    return evolve(reply, seconds=time.perf_counter() - start)


def _compiled(request: Request) -> bytes:
    plugin, device = unpack_plugin(request.plugin)
    memory = Memory(None if request.cache is None else Cache(request.cache))
    with context(plugin, device) as changes:
        call = unpack_call(request.call, plugin)
        task = memory.task(call, changes)
        # An equal key promises equal bytes: the program and all versions are the same.
        if task.key != request.key:
            raise LocalOnly(task.why or "it is not the same there: a version or program differs")
        limit_s = call.limit_s if request.exits else None
        with memory.compiler_cache(task), _ending_after(limit_s):
            results = call.compile(f" in {_process()}")
        entry = memory.entry(task, results)
    memory.store(entry)
    memory.close()
    return entry.to_bytes()


def _set(wanted: Mapping[str, Any]) -> None:
    """Set torch as in another process, given what `settings` returned there."""
    if torch.get_num_threads() != wanted["threads"]:
        torch.set_num_threads(wanted["threads"])
    torch.set_grad_enabled(wanted["grad"])
    torch.set_default_dtype(getattr(torch, wanted["dtype"]))
    torch.set_float32_matmul_precision(wanted["precision"])
    torch.use_deterministic_algorithms(wanted["deterministic"])


@contextmanager
def _ending_after(limit_s: float | None) -> Iterator[None]:
    """End this process if the block takes longer, even in native code that holds Python's lock."""
    if limit_s is None:
        yield
        return
    with open(os.devnull, "w") as null:
        faulthandler.dump_traceback_later(limit_s, exit=True, file=null)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _process() -> str:
    return f"process {os.getpid()} of {platform.node()}"
