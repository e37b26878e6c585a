"""Worker pools: loky's processes, a Dask client, and any other executor of the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Protocol

from attrs import define, evolve, field
from torch import Tensor

from etdev.delegate.executors.request import File, Reply, Request, answer
from etdev.delegate.executors.startup import prepare
from etdev.files import scratch

# A worker without work ends after that time; a lowering may be busy with something else for long.
_IDLE_S = 3600
# Smaller storages go along with the request: to scatter one takes several messages.
_SCATTER_FROM_BYTES = 1 << 16


class Pool(Protocol):
    """Workers that take requests."""

    @property
    def name(self) -> str:
        """A worker of it, for messages."""

    def submit(self, request: Request, storages: Sequence[tuple[int, Tensor]]) -> Future[Reply]:
        """Give it a request, with the storages of its weights by number."""

    def close(self) -> None:
        """Let go of whatever belongs to the lowering."""


@define(eq=False)
class LocalPool:
    """Processes of this machine, which loky starts afresh, and files with their weights.

    They are never forked, since torch's threads don't survive that, and the user's `__main__` is
    not run again.

    Args:
        count: How many.
    """

    count: int
    name: str = field(default="a process of this machine", init=False)
    _executor: Any = field(default=None, init=False)
    _begun: Future[int] | None = field(default=None, init=False)
    _folder: Any = field(default=None, init=False)
    _files: dict[int, File] = field(factory=dict, init=False)

    def start(self) -> Future[int]:
        """Start the processes; the result is there when one has imported torch and ExecuTorch."""
        begun: Future[int] = self._started().submit(os.getpid)
        self._begun = begun
        return begun

    @property
    def ready(self) -> bool:
        """True if a process has imported torch and ExecuTorch."""
        return self._begun is not None and self._begun.done()

    def submit(self, request: Request, storages: Sequence[tuple[int, Tensor]]) -> Future[Reply]:
        """Give them a request, with the storages of its weights by number."""
        files = [self._file(number, storage) for number, storage in storages]
        request = evolve(request, exits=True)
        future: Future[Reply] = self._started().submit(answer, request, *files)
        return future

    def close(self) -> None:
        """End the processes at once, and remove the files."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = self._begun = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._files.clear()

    def _started(self) -> Any:
        if self._executor is None:
            from loky import ProcessPoolExecutor
            from loky.backend import get_context

            self._executor = ProcessPoolExecutor(
                self.count,
                context=get_context("loky"),
                timeout=_IDLE_S,
                initializer=prepare,
                initargs=(list(sys.path),),
            )
        return self._executor

    def _file(self, number: int, storage: Tensor) -> File:
        if number not in self._files:
            if self._folder is None:
                self._folder = scratch()
            path = Path(self._folder.name) / str(number)
            storage.numpy().tofile(path)
            self._files[number] = File(str(path), storage.numel())
        return self._files[number]


@define(eq=False)
class ExecutorPool:
    """An executor of the user's; the weights go along with each request.

    Args:
        executor: The executor. It stays open.
    """

    executor: Executor

    @property
    def name(self) -> str:
        """A worker of it, for messages."""
        return f"a worker of the {type(self.executor).__name__}"

    def submit(self, request: Request, storages: Sequence[tuple[int, Tensor]]) -> Future[Reply]:
        """Give it a request, with the storages of its weights by number."""
        return self.executor.submit(answer, request, *(self._sent(*pair) for pair in storages))

    def close(self) -> None:
        """Do nothing, since the executor belongs to the user."""

    def _sent(self, number: int, storage: Tensor) -> Any:
        return storage.numpy().tobytes()


@define(eq=False)
class DaskPool(ExecutorPool):
    """The executor of a Dask client, which scatters each large storage once.

    Args:
        client: The client.
    """

    client: Any
    _scattered: dict[int, Any] = field(factory=dict, init=False)

    def close(self) -> None:
        """Let the cluster forget the storages."""
        self._scattered.clear()

    def _sent(self, number: int, storage: Tensor) -> Any:
        data = super()._sent(number, storage)
        if len(data) < _SCATTER_FROM_BYTES:
            return data
        if number not in self._scattered:
            self._scattered[number] = self.client.scatter(data)
        return self._scattered[number]


def pool_of(executor: Executor) -> Pool:
    """Return the pool of an executor that the user gave."""
    # `Client.get_executor()` keeps its client in a private field, and has no other way to scatter.
    client = getattr(executor, "_client", None)
    if type(executor).__module__.startswith("distributed.") and hasattr(client, "scatter"):
        return DaskPool(executor, client)
    return ExecutorPool(executor)
