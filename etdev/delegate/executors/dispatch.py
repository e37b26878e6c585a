"""The dispatcher, which gives tasks to workers and compiles the rest in this process.

An executor of the user's gets every task that can leave this process. Processes of etdev's own get
one task at a time, from one end of the list, while this process compiles from the other end.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

from attrs import define, evolve, field

from etdev.delegate.cache.cache import Memory
from etdev.delegate.cache.entry import CacheEntry
from etdev.delegate.cache.key import settings
from etdev.delegate.compiler_calls import Done, Task, compile_error, context
from etdev.delegate.executors.parcel import LocalOnly, pack
from etdev.delegate.executors.processes import start_process, stop_process
from etdev.delegate.executors.request import ONE_AT_A_TIME, Reply, Request, answer
from etdev.errors import CacheError, CompileError, first_line
from etdev.registry.watchdog import waiting_for

# Time that a request may take beyond the limit of its compiler: transfers, and imports elsewhere.
GRACE_S = 60.0


@define(eq=False)
class Dispatcher:
    """Workers, and this process.

    Args:
        executor: The user's; None for processes of etdev's own.
        own: The number of these.
        memory: Gets the results.
        begun: Called with each task that is sent, or whose compilation begins in this process.
    """

    executor: Executor | None
    own: int = 0
    memory: Memory = field(factory=Memory)
    begun: Callable[[Task], None] = field(default=lambda task: None)
    # Tasks that only this process can compile are at the end.
    _waiting: deque[Task] = field(factory=deque, init=False)
    # With the worker, and the time on the monotonic clock.
    _sent: dict[Future[Reply], tuple[Task, Executor, float]] = field(factory=dict, init=False)
    # etdev's own processes by what each is doing; at first it imports torch and ExecuTorch.
    _processes: dict[Executor, Future[Any]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for _ in range(self.own):
            self._start()

    def run(self, tasks: Sequence[Task], here: Callable[[Task], Done]) -> Iterator[Done]:
        """Compile tasks, in any order; `here` compiles one in this process.

        Raises:
            CompileError: The user's executor lost a task, or gives no answer. If a process of
                etdev's own dies, its task is done, with an error.
        """
        # Those that only a worker can compile first, and large ones, so that none of them is the
        # last to begin.
        order = sorted(tasks, key=lambda task: (self._shares(task), -task.call.nodes))
        waiting = self._waiting = deque(order)
        while waiting or self._sent:
            if done := next((future for future in self._sent if future.done()), None):
                yield from self._received(done)
            elif waiting and (worker := self._free(waiting[0])):
                yield from self._send(waiting.popleft(), worker)
            elif waiting and self._shares(waiting[-1]):
                self.begun(waiting[-1])
                with ONE_AT_A_TIME:
                    yield here(waiting.pop())
            else:
                yield from self._wait()

    def close(self) -> None:
        """Cancel requests that have not begun, and end etdev's own processes."""
        for future in self._sent:
            future.cancel()
        self._sent.clear()
        while self._processes:
            stop_process(self._processes.popitem()[0])

    def _start(self) -> None:
        process = start_process()
        self._processes[process] = process.submit(os.getpid)

    def _shares(self, task: Task) -> bool:
        """Return True if this process compiles a task when no worker is free."""
        # Only another process can be ended when it takes too long.
        return bool(task.stays) or (self.executor is None and task.call.limit_s is None)

    def _free(self, task: Task) -> Executor | None:
        """Return a worker that may have a task now."""
        if task.stays or self.executor:
            return None if task.stays else self.executor
        return next((worker for worker, doing in self._processes.items() if doing.done()), None)

    def _send(self, task: Task, worker: Executor) -> Iterator[Done]:
        try:
            if not (task.key or task.why):
                with context(task.call.plugin, task.call.first.device) as changes:
                    task = self.memory.task(task.call, changes)
            if not task.key:
                raise LocalOnly(task.why)
            packed = pack(task.call)
        except LocalOnly as error:
            self._waiting.append(evolve(task, stays=str(error)))
            return
        cache = self.memory.cache.settings if self.memory.cache and self.memory.enabled else None
        request = Request(*packed, task.key, settings(), cache, exits=worker in self._processes)
        self.begun(task)
        start = time.monotonic()
        try:
            future = worker.submit(answer, request)
        except Exception as error:  # Whatever an executor that can't go on raises.
            yield self._lost(error, task, worker, start)
            return
        self._sent[future] = task, worker, start
        if worker in self._processes:
            self._processes[worker] = future

    def _received(self, future: Future[Reply]) -> Iterator[Done]:
        """Yield what a worker made of a task, unless the task is for this process."""
        task, worker, start = self._sent.pop(future)
        try:
            reply = future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # CancelledError is not an Exception everywhere.
            yield self._lost(error, task, worker, start)
            return
        if reply.error:
            reply.error.__cause__ = reply.cause
            yield Done(task, error=reply.error, seconds=reply.seconds)
            return
        try:
            if reply.local_only:
                raise LocalOnly(reply.local_only)
            entry = CacheEntry.from_bytes(reply.entry, "a worker's reply", task.key)
            count = len(task.call.jobs)
            results = entry.results(count, "a worker's reply", self.memory.weights)
        except (LocalOnly, CacheError) as error:
            self._waiting.append(evolve(task, stays=str(error)))
            return
        if self.executor:
            # Processes of this machine have put it there themselves.
            self.memory.store(entry)
        yield Done(task, results, seconds=reply.seconds)

    def _wait(self) -> Iterator[Done]:
        """Wait for a reply or a free process; if none comes in time, a request is lost.

        A request may wait for a worker of the user's, so that its own time says nothing. Each
        worker refuses by itself a call that takes too long.
        """
        sent = [task.call for task, *_ in self._sent.values()]
        known = [call.limit_s for call in sent if call.limit_s is not None]
        limit = max(known) + GRACE_S if known and len(known) == len(sent) else None
        first = sent[0] if sent else self._waiting[0].call
        worker = f"a worker of the {type(self.executor).__name__}"
        what = f"{first.what} in {worker if self.executor else 'a process of this machine'}"
        awaited = [f for f in (*self._sent, *self._processes.values()) if not f.done()]
        with waiting_for(first.plugin.name, what, setting="compile_timeout_s"):
            done, _ = wait(awaited, limit, FIRST_COMPLETED)
        if not done:
            error = TimeoutError(f"no answer in {limit:g} s")
            yield self._lost(error, *self._sent.pop(next(iter(self._sent))))

    def _lost(self, error: BaseException, task: Task, worker: Executor, start: float) -> Done:
        """Return that a process of etdev's own died of a task; raise if it is the user's."""
        call, seconds = task.call, time.monotonic() - start
        if worker not in self._processes:
            what = f"{call.what} was lost by a worker of the {type(worker).__name__}"
            cure = "see what it logs, or lower without executor="
            raise CompileError(call.plugin.name, f"{what}: {first_line(error)}", cure) from error
        del self._processes[worker]
        stop_process(worker)
        if self._waiting:
            self._start()
        what = f"its process died of it, {first_line(error)}"
        if call.limit_s is not None and seconds > call.limit_s:
            what = f"its process was ended after {call.limit_s:g} s"
            error = TimeoutError(what)
        fault = compile_error(call.jobs[0], what)
        fault.__cause__ = error
        return Done(task, error=fault, seconds=seconds, died=True)
