"""The dispatcher, which gives tasks to a pool of workers and compiles the rest in this process.

An executor of the user's gets every task that can leave this process. Processes of etdev's own take
them from one end of the list, and this process from the other. A task that is lost with its worker
goes to a fresh process, alone; if that process dies as well, the backend is taken to be the reason.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as NoAnswerError

from attrs import define, evolve, field

from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.packing import unpacked
from etdev.delegate.cache_session import Memory
from etdev.delegate.compiler_calls import compile_error, context
from etdev.delegate.executors.parcel import LocalOnly, Storages, pack
from etdev.delegate.executors.pools import LocalPool, Pool
from etdev.delegate.executors.request import ONE_AT_A_TIME, Reply, Request
from etdev.delegate.settings import settings
from etdev.delegate.tasks import Done, Task
from etdev.errors import CacheError, CompileError, EtdevWarning, first_line
from etdev.registry.watchdog import waiting_for

# Compiles a task in this process.
Here = Callable[[Task], Done]

# Requests that an executor has at a time: enough for many workers, and few weights in memory.
_AHEAD = 64
# A worker is not waited for when it takes so many times as long as the slowest task took here.
_SLOWER = 3
# Time that a request may take beyond the limit of its compiler: imports, transfers, its key.
GRACE_S = 60.0


def patience_s(task: Task) -> float | None:
    """Return after how many seconds a worker without an answer is lost; None for never."""
    return None if task.limit_s is None else task.limit_s + GRACE_S


@define(eq=False)
class Dispatcher:
    """Workers, and this process.

    Args:
        pool: Takes requests.
        memory: Makes the keys of tasks, and keeps results.
        begun: Told of each task when it is sent, or when its compilation begins in this process.
    """

    pool: Pool
    memory: Memory = field(factory=Memory)
    begun: Callable[[Task], None] | None = None
    _storages: Storages = field(factory=Storages, init=False)
    _sent: dict[Future[Reply], tuple[Task, Request, float]] = field(factory=dict, init=False)
    _lost: deque[tuple[Task, Request, str]] = field(factory=deque, init=False)
    _local: deque[Task] = field(factory=deque, init=False)
    # Time of the slowest task in this process.
    _slowest_s: float = field(default=0.0, init=False)

    def run(self, tasks: Sequence[Task], here: Here) -> Iterator[Done]:
        """Compile tasks, in any order.

        Args:
            tasks: The tasks.
            here: Compiles one in this process.
        """
        # Large ones first, so that none of them is the last to begin.
        waiting = deque(sorted(tasks, key=lambda task: -task.call.size))
        while waiting or self._local or self._sent or self._lost:
            # What is lost is tried again before the pool gets more.
            while waiting and not self._lost and len(self._sent) < self._ahead(waiting):
                self._send(waiting.popleft())
            if ready := [future for future in self._sent if future.done()]:
                for future in ready:
                    yield from self._received(future)
            elif self._local:
                yield self._here(self._local.popleft(), here)
            elif waiting and self._shares(waiting[-1]):
                yield self._here(waiting.pop(), here)
            elif task := self._recalled():
                yield self._here(task, here)
            elif self._sent:
                self._wait()
            elif self._lost:
                yield from self._retry()

    def close(self) -> None:
        """End requests that are not done, and etdev's own processes; keep what is done."""
        for future, (task, _, _) in self._sent.items():
            if not future.cancel() and future.done() and not future.exception():
                self._keep(future.result(), task)
        self._sent.clear()
        self.pool.close()

    def _shares(self, task: Task) -> bool:
        """Return True if this process may compile a task that a worker could compile, too."""
        # Only a worker can be ended when it takes too long.
        return isinstance(self.pool, LocalPool) and task.limit_s is None

    def _ahead(self, waiting: Sequence[Task]) -> int:
        """Return how many requests the pool may have."""
        if not isinstance(self.pool, LocalPool) or not self._shares(waiting[0]):
            return _AHEAD
        # One to work on and one to go on with, and a task for this process.
        return 2 * self.pool.count if self.pool.ready and len(waiting) > 1 else 0

    def _recalled(self) -> Task | None:
        """Return a task that a worker has not begun, or takes very long with."""
        begun = self.pool.count if isinstance(self.pool, LocalPool) else len(self._sent)
        for place, (future, (task, _, start)) in reversed(list(enumerate(self._sent.items()))):
            slow = 0 < _SLOWER * self._slowest_s < time.perf_counter() - start
            if self._shares(task) and (slow or place >= begun):
                del self._sent[future]
                return task
        return None

    def _send(self, task: Task) -> None:
        if not task.key and not task.stays:
            with context(task.plugin, task.call.first.device) as changes:
                task = self.memory.named(task, changes)
        if not task.key:
            self._local.append(task)
            return
        try:
            parcel = pack(task.call, task.plugin, self._storages)
        except LocalOnly as error:
            self._local.append(evolve(task, stays=str(error)))
            return
        cache = self.memory.cache.settings if self.memory.cache and self.memory.enabled else None
        request = Request(parcel, task.key, settings(), cache, task.limit_s)
        if self.begun:
            self.begun(task)
        try:
            self._sent[self._submit(request)] = task, request, time.perf_counter()
        except Exception as error:  # Whatever an executor that can't go on raises.
            self._lose(task, request, first_line(error))

    def _submit(self, request: Request) -> Future[Reply]:
        storages = self._storages.tensors
        return self.pool.submit(request, [(n, storages[n]) for n in request.parcel.storages])

    def _lose(self, task: Task, request: Request, why: str) -> None:
        self._lost.append((task, request, f"{task.plugin.name}: {task.call.first.where}: {why}"))

    def _received(self, future: Future[Reply]) -> Iterator[Done]:
        task, request, start = self._sent.pop(future)
        try:
            reply = future.result()
        except BaseException as error:  # CancelledError is not an Exception everywhere.
            if isinstance(error, KeyboardInterrupt):
                raise
            self._lose(task, request, first_line(error))
        else:
            yield from self._read(task, reply, time.perf_counter() - start)

    def _read(self, task: Task, reply: Reply, seconds: float) -> Iterator[Done]:
        if reply.error:
            reply.error.__cause__ = reply.cause
            yield Done(task, error=reply.error, seconds=seconds)
            return
        try:
            if reply.local_only:
                raise LocalOnly(reply.local_only)
            entry = Entry.from_bytes(reply.entry, "a worker's reply", task.key)
            weights = self.memory.keys.weights
            results = unpacked(entry, len(task.call.jobs), "a worker's reply", weights)
        except (LocalOnly, CacheError) as error:
            self._local.append(evolve(task, stays=str(error)))
            return
        self._keep(reply, task)
        yield Done(task, results, entry=entry, seconds=seconds)

    def _keep(self, reply: Reply, task: Task) -> None:
        """Put results into the cache of this machine; its own processes have done so themselves."""
        cache = self.memory.cache
        if cache and reply.entry and not isinstance(self.pool, LocalPool):
            cache.store(Entry.from_bytes(reply.entry, "a worker's reply", task.key))

    def _wait(self) -> None:
        """Wait for a reply; if none comes in time, all requests are lost.

        The time of one request says nothing, since it may have waited for its turn. Each worker
        refuses by itself a call that takes it too long.
        """
        sent = list(self._sent.items())
        tasks = [task for _, (task, _, _) in sent]
        limits = [patience_s(task) for task in tasks]
        limit = None if None in limits else max(known for known in limits if known is not None)
        patience = _SLOWER * self._slowest_s if self._shares(tasks[0]) else limit
        with waiting_for(tasks[0].plugin.name, f"{tasks[0].call.what} in {self.pool.name}"):
            done, _ = wait(self._sent, patience, FIRST_COMPLETED)
        if not done and limit is not None:
            self._sent.clear()
            for future, (task, request, _) in sent:
                future.cancel()
                self._lose(task, request, f"no answer in {limit:g} s from {self.pool.name}")

    def _here(self, task: Task, here: Here) -> Done:
        if self.begun:
            self.begun(task)
        with ONE_AT_A_TIME:
            done = here(task)
        self._slowest_s = max(self._slowest_s, done.seconds)
        return done

    def _retry(self) -> Iterator[Done]:
        """Give each lost request to a fresh process that has no other."""
        what = self._lost[0][2]
        text = f"executor: a worker was lost ({what}); going on with new processes of this machine"
        warnings.warn(text, EtdevWarning, stacklevel=2)
        self.pool.close()
        pool = self.pool = self.pool if isinstance(self.pool, LocalPool) else LocalPool(1)
        while self._lost:
            task, request, _ = self._lost.popleft()
            start = time.perf_counter()
            try:
                pool.start().result()
            except Exception as error:  # loky's own, which says nothing of the request.
                pool.close()
                stays = f"processes can't start: {first_line(error)}"
                self._local.append(evolve(task, stays=stays))
                continue
            try:
                reply = self._again(task, request)
            except CompileError as error:
                pool.close()
                yield Done(task, error=error, seconds=time.perf_counter() - start, died=True)
            else:
                yield from self._read(task, reply, time.perf_counter() - start)

    def _again(self, task: Task, request: Request) -> Reply:
        """Return the reply of the second process that gets a request.

        Raises:
            CompileError: The process died of it, too, or gives no answer.
        """
        start, job, limit = time.monotonic(), task.call.jobs[0], patience_s(task)
        try:
            with waiting_for(task.plugin.name, f"{task.call.what} in the second process"):
                return self._submit(request).result(limit)
        except NoAnswerError:
            what = f"two workers froze, no answer in {limit:g} s from {self.pool.name}"
            raise compile_error(job, what) from TimeoutError(what)
        except Exception as error:  # loky's own: the backend's is in the reply.
            if task.limit_s is not None and time.monotonic() - start > task.limit_s:
                what = f"two processes were ended after {task.limit_s:g} s"
                raise compile_error(job, what) from TimeoutError(what)
            raise compile_error(job, f"two processes died of it, {first_line(error)}") from error
