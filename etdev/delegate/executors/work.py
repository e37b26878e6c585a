"""Work: what a worker does with a parcel, wherever it is."""

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
from etdev.delegate.executors.plain import Stays
from etdev.delegate.executors.travel import Arrival, Parcel
from etdev.delegate.settings import taken_over
from etdev.errors import CompileError, EtdevError, first_line
from etdev.schema.caching import CacheSettings
from etdev.schema.compiler_cache import standing

# Backends' passes share state of their modules, so that two threads would disturb each other.
ONE_AT_A_TIME = threading.RLock()


@frozen
class File:
    """A storage in a file of this machine.

    Args:
        path: The file.
        size: Its bytes.
    """

    path: str
    size: int


@frozen
class Order:
    """What a worker is asked to do.

    Args:
        parcel: The call.
        key: The key that it must have there, too.
        settings: What of torch's own compilers may read.
        cache: Where the worker keeps what it compiles; None for nowhere.
        limit_s: Seconds that compiling may take; None for any.
        ends: Whether the worker is a process of ours, which ends where compiling takes longer.
    """

    parcel: Parcel
    key: str
    settings: Mapping[str, Any]
    cache: Mapping[str, Any] | None
    limit_s: float | None = None
    ends: bool = False


@frozen
class Reply:
    """What came of it: an entry, why it stays where it was, or an error.

    Args:
        entry: The results as bytes; empty if there are none.
        stays: Why it can't be compiled there.
        error: Who, what and what to do, of an error.
        line: Its cause in one line.
        trace: It with all its causes, as text.
        worker: Which process it was.
    """

    entry: bytes = b""
    stays: str = ""
    error: tuple[str, str, str] | None = None
    line: str = ""
    trace: str = ""
    worker: str = ""


class WorkerError(Exception):
    """What a backend raised in another process.

    Args:
        line: It, in one line.
        trace: Its traceback with those of all its causes, as text.
        worker: Which process that was.
    """

    def __init__(self, line: str, trace: str, worker: str = "") -> None:
        super().__init__(line, trace, worker)
        self.line = line
        self.trace = trace
        self.worker = worker

    def __str__(self) -> str:
        return f"{self.line}\n\nin {self.worker}:\n{self.trace}"


def failure(reply: Reply) -> CompileError:
    """The error of a reply that has one, with what the backend raised there as its cause."""
    assert reply.error
    error = CompileError(*reply.error)
    error.__cause__ = WorkerError(reply.line, reply.trace, reply.worker)
    return error


def work(order: Order, *handles: File | bytes) -> Reply:
    """Compile a parcel.

    Args:
        order: What to do.
        handles: The storages of its weights, in the order of the parcel's.
    """
    with ONE_AT_A_TIME, taken_over(order.settings):
        try:
            return Reply(_compiled(order, handles))
        except (Stays, Unhashable, Unstorable) as error:
            return Reply(stays=str(error))
        except CompileError as error:
            said = error.who, error.what, error.cure
            trace = "".join(traceback.format_exception(error))
            line = first_line(error.__cause__ or error)
            return Reply(error=said, line=line, trace=trace, worker=_worker())
        except EtdevError as error:
            # Not of the backend but of this place: a plugin that can't prepare it, for one.
            return Reply(stays=str(error))


def _compiled(order: Order, handles: Sequence[File | bytes]) -> bytes:
    arrival = Arrival.of(order.parcel)
    first = arrival.plan.partitions[0]
    cache = None if order.cache is None else Cache(CacheSettings(**order.cache))
    with context(arrival.plugin, first.device) as changes:
        call = arrival.call(lambda number: _storage(handles[number]))
        # The same key means the same bytes: of one program, in the same versions of everything.
        keys = Keys()
        name = keys.name(call, arrival.plugin, changes)
        if name.key != order.key:
            raise Stays("it is not the same there: a version or the program differs")
        shelf = CacheShelf(cache, call, name.place) if cache else None
        with standing(shelf), _ended_after(order.limit_s if order.ends else None):
            results = call.compile(order.limit_s, f" in {_worker()}")
        entry = packed(results, order.key, about(call), keys.weights)
    if cache:
        cache.store(entry)
        cache.close()
    return entry.to_bytes()


@contextmanager
def _ended_after(limit_s: float | None) -> Iterator[None]:
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


def _worker() -> str:
    return f"process {os.getpid()} of {platform.node()}"


def _storage(handle: File | bytes) -> Tensor:
    """The bytes of a storage, afresh each time."""
    if isinstance(handle, File):
        # A private mapping: what is written to it stays here.
        return torch.from_file(handle.path, shared=False, size=handle.size, dtype=torch.uint8)
    return torch.frombuffer(bytearray(handle), dtype=torch.uint8) if handle else torch.empty(0)
