"""Processes: workers of this machine, started afresh by loky.

Never forked, since torch's threads don't survive that, and the user's `__main__` is not run again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from torch import Tensor

from etdev.delegate.executors.ready import prepare
from etdev.delegate.executors.work import File, Order, Reply, work
from etdev.files import scratch

# A worker that has nothing to do ends; a lowering may be busy with something else for long.
_IDLE_S = 3600
# Orders for each that is ready: one that it works on, and the next.
_AHEAD = 2


@define(eq=False)
class Processes:
    """Worker processes, and files that their weights are in.

    Args:
        count: How many.
    """

    count: int
    _executor: Any = field(default=None, init=False)
    _ready: list[Future[int]] = field(factory=list, init=False)
    _began_s: list[float] = field(factory=list, init=False)
    _folder: Any = field(default=None, init=False)
    _files: dict[int, File] = field(factory=dict, init=False)

    @property
    def limit(self) -> int:
        """How many orders to give them ahead; none until they have imported what they need."""
        return _AHEAD * self.ready

    @property
    def ready(self) -> int:
        """How many have imported what they need."""
        return sum(future.done() for future in self._ready)

    @property
    def begins_s(self) -> float:
        """Seconds that it took them to begin, imports included; 0 before the first has."""
        return max(self._began_s, default=0.0)

    @property
    def name(self) -> str:
        """Who works there, for people."""
        known = sorted({future.result() for future in self._ready if _answered(future)})
        if len(known) == 1:
            return f"process {known[0]}"
        return f"processes {' and '.join(map(str, known))}" if known else "a process"

    def start(self) -> None:
        """Start them, so that they import torch and ExecuTorch meanwhile."""
        self._started()

    def check(self) -> None:
        """Wait until one is ready.

        Raises:
            Exception: loky's own, if they can't start.
        """
        self._started()
        self._ready[0].result()

    def submit(self, order: Order, storages: Sequence[tuple[int, Tensor]]) -> Future[Reply]:
        """Give them an order, with the storages of its weights by number."""
        handles = [self._file(number, storage) for number, storage in storages]
        future: Future[Reply] = self._started().submit(work, evolve(order, ends=True), *handles)
        return future

    def close(self) -> None:
        """End them at once, and remove the files."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor, self._ready = None, []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._files.clear()

    def _started(self) -> Any:
        if self._executor is None:
            from loky import ProcessPoolExecutor
            from loky.backend import get_context

            start = time.perf_counter()
            self._executor = ProcessPoolExecutor(
                self.count,
                context=get_context("loky"),
                timeout=_IDLE_S,
                initializer=prepare,
                initargs=(list(sys.path),),
            )
            self._ready = [self._executor.submit(os.getpid) for _ in range(self.count)]
            for future in self._ready:
                future.add_done_callback(
                    lambda _: self._began_s.append(time.perf_counter() - start)
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


def _answered(future: Future[int]) -> bool:
    return future.done() and not future.cancelled() and not future.exception()
