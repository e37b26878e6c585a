"""The dispatcher, which gives tasks to an executor and compiles the rest in this process.

An executor of the user's gets every task that can leave this process. Processes of etdev's own take
tasks from one end of the list, and this process from the other; in the end it takes back those that
it would have compiled meanwhile. If a worker is lost, each of its tasks goes to a fresh process,
alone; if that process dies as well, the backend is the reason.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures import TimeoutError as NoAnswerError

from attrs import define, evolve, field

from etdev.delegate.cache.cache import Memory
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.key import settings
from etdev.delegate.cache.packing import unpacked
from etdev.delegate.compiler_calls import Done, Task, compile_error, context
from etdev.delegate.executors.parcel import LocalOnly, pack
from etdev.delegate.executors.processes import start_processes
from etdev.delegate.executors.request import ONE_AT_A_TIME, Reply, Request, answer
from etdev.errors import CacheError, CompileError, EtdevWarning, first_line
from etdev.registry.watchdog import waiting_for

# Time that a request may take beyond the limit of its compiler: imports, transfers, its key.
GRACE_S = 60.0
_OWN = "a process of this machine"


def patience_s(task: Task) -> float | None:
    """Return after how many seconds a worker without an answer is lost; None for never."""
    return None if task.call.limit_s is None else task.call.limit_s + GRACE_S


@define(eq=False)
class Dispatcher:
    """An executor, and this process.

    Args:
        executor: Compiles requests.
        own: Number of its processes if they are etdev's own, else 0.
        memory: Gets the results.
        begun: Called with each task that is sent, or whose compilation begins in this process.
    """

    executor: Executor
    own: int = 0
    memory: Memory = field(factory=Memory)
    begun: Callable[[Task], None] = field(default=lambda task: None)
    _sent: dict[Future[Reply], tuple[Task, Request]] = field(factory=dict, init=False)
    _sent_at: dict[Task, float] = field(factory=dict, init=False)
    # Of the tasks that this process has compiled.
    _longest_s: float = field(default=0.0, init=False)
    _lost: list[tuple[Task, Request, str]] = field(factory=list, init=False)
    _local: deque[Task] = field(factory=deque, init=False)
    # Done when one of etdev's own processes has imported torch and ExecuTorch.
    _ready: Future[int] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._ready = self.executor.submit(os.getpid) if self.own else None

    def run(self, tasks: Sequence[Task], here: Callable[[Task], Done]) -> Iterator[Done]:
        """Compile tasks, in any order; `here` compiles one in this process."""
        # Those that only a worker can compile first, and large ones, so that none of them is the
        # last to begin.
        waiting = deque(sorted(tasks, key=lambda task: (self._shares(task), -task.call.nodes)))
        while waiting or self._sent or self._local or self._lost:
            while waiting and not self._lost and len(self._sent) < self._room(waiting):
                self._send(waiting.popleft())
            if ready := [future for future in self._sent if future.done()]:
                for future in ready:
                    yield from self._received(future)
            elif self._local:
                yield self._here(self._local.popleft(), here)
            elif waiting and self._shares(waiting[-1]):
                yield self._here(waiting.pop(), here)
            elif task := self._taken_back():
                yield self._here(task, here)
            elif self._sent:
                self._wait()
            else:
                yield from self._retry()

    def close(self) -> None:
        """Cancel requests that have not begun, and end etdev's own processes."""
        for future in self._sent:
            future.cancel()
        self._sent.clear()
        if self.own:
            # loky's own argument.
            self.executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]

    @property
    def _worker(self) -> str:
        return _OWN if self.own else f"a worker of the {type(self.executor).__name__}"

    def _shares(self, task: Task) -> bool:
        """Return True if this process may compile a task that a worker could compile, too."""
        # Only a worker can be ended when it takes too long.
        return self.own > 0 and task.call.limit_s is None

    def _room(self, waiting: Sequence[Task]) -> int:
        """Return how many requests the executor may have."""
        if not self._shares(waiting[0]):
            return len(waiting) + len(self._sent)
        # One to work on and one to go on with for each process, and a task for this one.
        begun = self._ready is not None and self._ready.done()
        return 2 * self.own if begun and len(waiting) > 1 else 0

    def _taken_back(self) -> Task | None:
        """Return a task that this process compiles rather than wait for it, no longer sent.

        The first task of a fresh worker takes seconds longer. The results are the same.
        """
        since = time.monotonic() - self._longest_s
        for future, (task, _) in reversed(self._sent.items()):
            if self._shares(task) and (future.cancel() or self._sent_at[task] <= since):
                del self._sent[future]
                return task
        return None

    def _here(self, task: Task, here: Callable[[Task], Done]) -> Done:
        self.begun(task)
        with ONE_AT_A_TIME:
            done = here(task)
        self._longest_s = max(self._longest_s, done.seconds)
        return done

    def _send(self, task: Task) -> None:
        try:
            if not (task.key or task.why):
                with context(task.call.plugin, task.call.first.device) as changes:
                    task = self.memory.task(task.call, changes)
            if not task.key:
                raise LocalOnly(task.why)
            parcel = pack(task.call)
        except LocalOnly as error:
            self._local.append(evolve(task, stays=str(error)))
            return
        cache = self.memory.cache.settings if self.memory.cache and self.memory.enabled else None
        request = Request(parcel, task.key, settings(), cache)
        self.begun(task)
        self._sent_at[task] = time.monotonic()
        try:
            self._sent[self._submit(request)] = task, request
        except Exception as error:  # Whatever an executor that can't go on raises.
            self._lose(task, request, first_line(error))

    def _submit(self, request: Request) -> Future[Reply]:
        return self.executor.submit(answer, evolve(request, exits=self.own > 0))

    def _lose(self, task: Task, request: Request, why: str) -> None:
        first = task.call.first
        self._lost.append((task, request, f"{first.plugin}: {first.where}: {why}"))

    def _received(self, future: Future[Reply]) -> Iterator[Done]:
        task, request = self._sent.pop(future)
        try:
            reply = future.result()
        except BaseException as error:  # CancelledError is not an Exception everywhere.
            if isinstance(error, KeyboardInterrupt):
                raise
            self._lose(task, request, first_line(error))
        else:
            yield from self._read(task, reply)

    def _read(self, task: Task, reply: Reply) -> Iterator[Done]:
        if reply.error:
            reply.error.__cause__ = reply.cause
            yield Done(task, error=reply.error, seconds=reply.seconds)
            return
        try:
            if reply.local_only:
                raise LocalOnly(reply.local_only)
            entry = Entry.from_bytes(reply.entry, "a worker's reply", task.key)
            count = len(task.call.jobs)
            results = unpacked(entry, count, "a worker's reply", self.memory.weights)
        except (LocalOnly, CacheError) as error:
            self._local.append(evolve(task, stays=str(error)))
            return
        if not self.own:
            # Processes of this machine have put it there themselves.
            self.memory.store(entry)
        yield Done(task, results, seconds=reply.seconds)

    def _wait(self) -> None:
        """Wait for a reply; if none comes in time, all requests are lost.

        The time of one request says nothing, since it may have waited for a worker. Each worker
        refuses by itself a call that takes too long.
        """
        sent = list(self._sent.items())
        if any(self._shares(task) for _, (task, _) in sent):
            wait(self._sent, self._longest_s, FIRST_COMPLETED)
            return
        limits = [patience_s(task) for _, (task, _) in sent]
        limit = None if None in limits else max(known for known in limits if known is not None)
        first = sent[0][1][0].call
        what = f"{first.what} in {self._worker}"
        with waiting_for(first.plugin.name, what, setting="compile_timeout_s"):
            done, _ = wait(self._sent, limit, FIRST_COMPLETED)
        if not done and limit is not None:
            self._sent.clear()
            for future, (task, request) in sent:
                future.cancel()
                self._lose(task, request, f"no answer in {limit:g} s from {self._worker}")

    def _retry(self) -> Iterator[Done]:
        """Give each lost request to a process that has no other, and that lost none itself."""
        what = self._lost[0][2]
        text = f"executor: a worker was lost ({what}); going on with new processes of this machine"
        warnings.warn(text, EtdevWarning, stacklevel=2)
        lost, self._lost, fresh = self._lost, [], False
        for task, request, _ in lost:
            if not fresh:
                self.close()
                self.executor, self.own, fresh = start_processes(1), 1, True
            start = time.perf_counter()
            try:
                reply = self._again(task, request)
            except CompileError as error:
                fresh = False
                yield Done(task, error=error, seconds=time.perf_counter() - start, died=True)
            else:
                yield from self._read(task, reply)

    def _again(self, task: Task, request: Request) -> Reply:
        """Return the reply of the second process, or raise that it died or froze as well."""
        start, call, limit = time.monotonic(), task.call, patience_s(task)
        try:
            # Its imports don't count.
            self.executor.submit(int).result()
            start = time.monotonic()
            what = f"{call.what} in the second process"
            with waiting_for(call.plugin.name, what, setting="compile_timeout_s"):
                return self._submit(request).result(limit)
        except NoAnswerError:
            what = f"two workers froze, no answer in {limit:g} s from {_OWN}"
            raise compile_error(call.jobs[0], what) from TimeoutError(what)
        except Exception as error:  # loky's own: the backend's is in the reply.
            if call.limit_s is not None and time.monotonic() - start > call.limit_s:
                what = f"two processes were ended after {call.limit_s:g} s"
                raise compile_error(call.jobs[0], what) from TimeoutError(what)
            what = f"two processes died of it, {first_line(error)}"
            raise compile_error(call.jobs[0], what) from error
