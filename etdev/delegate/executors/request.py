"""The request to compile a call that a worker gets, and the reply that it gives."""

from __future__ import annotations

import faulthandler
import os
import platform
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache.faithful import Unhashable
from etdev.delegate.cache.key import Keys, about
from etdev.delegate.cache.packing import Unstorable, packed
from etdev.delegate.cache_session import CacheShelf
from etdev.delegate.compiler_calls import context
from etdev.delegate.executors.parcel import LocalOnly, Parcel, unpack_call, unpack_plugin
from etdev.delegate.settings import taken_over
from etdev.errors import CompileError, EtdevError, first_line
from etdev.schema.caching import CacheSettings
from etdev.schema.compiler_cache import standing

# Passes of backends keep state in their modules, so that two threads would disturb each other.
ONE_AT_A_TIME = threading.RLock()


@frozen
class File:
    """A file of this machine with the bytes of a storage.

    Args:
        path: The file.
        size: Its number of bytes.
    """

    path: str
    size: int


@frozen
class Request:
    """A call that a worker is asked to compile.

    Args:
        parcel: The call.
        key: The cache key that it must have in the worker, too.
        settings: Settings of torch that compilers may read.
        cache: Where the worker keeps what it compiles; None for nowhere.
        limit_s: Seconds that compiling may take; None for any.
        exits: True if the worker is a process of etdev's, which ends when it compiles for longer.
    """

    parcel: Parcel
    key: str
    settings: Mapping[str, Any]
    cache: CacheSettings | None
    limit_s: float | None = None
    exits: bool = False


class WorkerError(Exception):
    """An error that a backend raised in a worker, as text.

    Args:
        line: The error in one line.
        trace: Its traceback with those of all its causes.
        worker: The worker's process.
    """

    def __init__(self, line: str, trace: str, worker: str) -> None:
        super().__init__(line, trace, worker)
        self.line = line
        self.trace = trace
        self.worker = worker

    def __str__(self) -> str:
        return f"{self.line}\n\nin {self.worker}:\n{self.trace}"


@frozen
class Reply:
    """A worker's answer, which is one of three things.

    Args:
        entry: The results as an entry of the cache.
        local_only: Why the worker can't compile it.
        error: The error of the backend.
        cause: The cause of that error.
    """

    entry: bytes = b""
    local_only: str = ""
    error: CompileError | None = None
    cause: WorkerError | None = None


def answer(request: Request, *storages: File | bytes) -> Reply:
    """Compile a request; called in a worker.

    Args:
        request: The request.
        storages: The storages of its weights, in the order of its parcel.
    """
    with ONE_AT_A_TIME, taken_over(request.settings):
        try:
            return Reply(_compiled(request, storages))
        except (LocalOnly, Unhashable, Unstorable) as error:
            return Reply(local_only=str(error))
        except CompileError as error:
            line, trace = first_line(error.__cause__ or error), traceback.format_exception(error)
            return Reply(error=error, cause=WorkerError(line, "".join(trace), _process()))
        except EtdevError as error:
            # The fault of this machine rather than the backend's: the plugin is unfit here.
            return Reply(local_only=str(error))


def _compiled(request: Request, storages: Sequence[File | bytes]) -> bytes:
    plugin, device = unpack_plugin(request.parcel)
    cache = None if request.cache is None else Cache(request.cache)
    with context(plugin, device) as changes:
        call = unpack_call(request.parcel, lambda place: _tensor(storages[place]))
        keys = Keys()
        name = keys.name(call, plugin, changes)
        # An equal key promises equal bytes: the program and all versions are the same.
        if name.key != request.key:
            raise LocalOnly("it is not the same there: a version or the program differs")
        shelf = CacheShelf(cache, call, name.place) if cache else None
        with standing(shelf), _ending_after(request.limit_s if request.exits else None):
            results = call.compile(request.limit_s, f" in {_process()}")
        entry = packed(results, request.key, about(call), keys.weights)
    if cache:
        cache.store(entry)
        cache.close()
    return entry.to_bytes()


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


def _tensor(storage: File | bytes) -> Tensor:
    """Return the bytes of a storage; the caller may write to them."""
    if isinstance(storage, File):
        # A private mapping, which doesn't change the file.
        return torch.from_file(storage.path, shared=False, size=storage.size, dtype=torch.uint8)
    return torch.frombuffer(bytearray(storage), dtype=torch.uint8) if storage else torch.empty(0)
