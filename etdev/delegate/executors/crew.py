"""The crew: who compiles what, and what happens if a worker is lost.

Orders go to a lane. With processes of our own this one compiles beside them, from the other end of
the list. What can't travel is compiled here. An order that is lost with its worker is given to a
fresh process, alone; if that dies, too, the backend is taken to be the reason.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait

from attrs import define, evolve, field
from torch import Tensor

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.results import unpacked
from etdev.delegate.calls import Call, compile_error
from etdev.delegate.executors.lanes import Lane
from etdev.delegate.executors.plain import Stays
from etdev.delegate.executors.processes import Processes
from etdev.delegate.executors.travel import Parcel, pack
from etdev.delegate.executors.weights import Weights
from etdev.delegate.executors.work import ONE_AT_A_TIME, Order, Reply, settings_of, surroundings
from etdev.delegate.jobs import compiler_of
from etdev.delegate.tasks import Done, Task
from etdev.errors import CacheError, CompileError, EtdevWarning, PluginError, first_line
from etdev.waiting import CURE, waiting_for


class WorkerError(Exception):
    """What a backend raised in another process.

    Args:
        line: It, in one line.
        trace: Its traceback with those of all its causes, as text.
    """

    def __init__(self, line: str, trace: str) -> None:
        super().__init__(line, trace)
        self.line = line
        self.trace = trace

    def __str__(self) -> str:
        return f"{self.line}\n\n{self.trace}"


# What a worker takes to begin, to carry weights over, and to end a compiler by itself.
_GRACE_S = 20.0
# Compiles a task in this process.
Here = Callable[[Task], Done]


@define(eq=False)
class Crew:
    """Workers, and this process.

    Args:
        lane: Takes orders.
        cache: Where the workers keep what they compile.
        begun: Told of each task when its compilation begins, or is ordered.
    """

    lane: Lane
    cache: Cache | None = None
    begun: Callable[[Task], None] | None = None
    _weights: Weights = field(factory=Weights, init=False)
    _orders: dict[Future[Reply], tuple[Task, Order, float]] = field(factory=dict, init=False)
    _lost: deque[tuple[Task, Order, str]] = field(factory=deque, init=False)
    _alone: Processes | None = field(default=None, init=False)

    def run(self, tasks: Sequence[Task], here: Here) -> Iterator[Done]:
        """Compile tasks, in any order.

        Args:
            tasks: The tasks.
            here: Compiles one in this process.
        """
        # Large ones first, so that none is left for the end; the small end is for this process.
        waiting = deque(sorted(tasks, key=lambda task: -_size(task.call)))
        staying: deque[Task] = deque()
        while waiting or staying or self._orders or self._lost:
            self._give(waiting, staying)
            ready = [future for future in self._orders if future.done()]
            if ready:
                for future in ready:
                    yield from self._taken(future, staying)
            elif staying:
                yield self._here(staying.popleft(), here)
            elif waiting and self._shares:
                yield self._here(waiting.pop(), here)
            elif self._orders and (task := self._back()):
                yield self._here(task, here)
            elif self._orders:
                self._wait(self._orders)
            else:
                yield from self._again(*self._lost.popleft(), staying)

    @property
    def _shares(self) -> bool:
        return isinstance(self.lane, Processes)

    def _give(self, waiting: deque[Task], staying: deque[Task]) -> None:
        # After a loss, what was lost comes first.
        if waiting and not self._lost and isinstance(self.lane, Processes):
            self.lane.start()
        while waiting and not self._lost and len(self._orders) < self.lane.limit:
            task = waiting.popleft()
            if not task.key:
                staying.append(task)
                continue
            try:
                parcel = pack(task.call, task.plugin, self._weights)
            except Stays as error:
                staying.append(evolve(task, stays=str(error)))
                continue
            limit_s = task.plugin.limits.compile_timeout_s
            order = Order(parcel, task.key, surroundings(), settings_of(self.cache), limit_s)
            self._submit(task, order)

    def _submit(self, task: Task, order: Order) -> None:
        if self.begun:
            self.begun(task)
        try:
            future = self.lane.submit(order, self._storages(order.parcel))
        except Exception as error:  # Whatever an executor that can't go on raises.
            self._lose(task, order, error)
        else:
            self._orders[future] = task, order, time.perf_counter()

    def _wait(self, orders: Mapping[Future[Reply], tuple[Task, Order, float]]) -> None:
        """Wait for the first of some orders, told by the oldest.

        A worker ends Python code that takes too long by itself; one of ours that is in native code
        is ended.

        Raises:
            PluginError: No worker of ours is done in time.
        """
        task, _, _ = min(orders.values(), key=lambda item: item[2])
        limits = [order.limit_s for _, order, _ in orders.values() if order.limit_s is not None]
        ends = self._shares and len(limits) == len(orders)
        first = task.call.first
        what = f"{compiler_of(first)} on {first.where}"
        with waiting_for(first.plugin, f"{what}, in another process"):
            limit_s = max(limits) + _GRACE_S if ends else None
            if wait(orders, limit_s, FIRST_COMPLETED).done:
                return
        self._dismiss()
        self.lane.close()
        what = f"{what} took more than {max(limits):g} s in another process, which was ended"
        raise PluginError(first.plugin, what, CURE)

    def _storages(self, parcel: Parcel) -> list[tuple[int, Tensor]]:
        return [(number, self._weights.storages[number]) for number in parcel.storages]

    def _taken(self, future: Future[Reply], staying: deque[Task]) -> Iterator[Done]:
        """What came of an order that is done, unless it was lost or has to stay."""
        task, order, start = self._orders.pop(future)
        try:
            reply = future.result()
        except (Exception, CancelledError) as error:
            self._lose(task, order, error)
            return
        yield from self._read(task, reply, time.perf_counter() - start, staying)

    def _read(
        self, task: Task, reply: Reply, seconds: float, staying: deque[Task]
    ) -> Iterator[Done]:
        if reply.error and reply.late:
            raise PluginError(*reply.error)
        if reply.error:
            error = CompileError(*reply.error)
            error.__cause__ = WorkerError(reply.line, reply.trace)
            yield Done(task, error=error, seconds=seconds)
            return
        try:
            if reply.stays:
                raise Stays(reply.stays)
            entry = Entry.from_bytes(reply.entry, "a worker's reply", task.key)
            results = unpacked(entry, len(task.call.jobs), "a worker's reply")
        except (Stays, CacheError) as error:
            staying.append(evolve(task, stays=str(error)))
            return
        self._keep(reply, task)
        yield Done(task, results, entry=entry, seconds=seconds)

    def _lose(self, task: Task, order: Order, error: BaseException) -> None:
        self._lost.append((task, order, first_line(error)))

    def _back(self) -> Task | None:
        """Take back an order that no worker of ours has begun with."""
        if not self._shares:
            return None
        for future, (task, _, _) in reversed(list(self._orders.items())):
            if future.cancel():
                del self._orders[future]
                return task
        return None

    def _here(self, task: Task, here: Here) -> Done:
        if self.begun:
            self.begun(task)
        with ONE_AT_A_TIME:
            return here(task)

    def _again(self, task: Task, order: Order, what: str, staying: deque[Task]) -> Iterator[Done]:
        """Give a lost order to a process that has no other."""
        if self._alone is None:
            self._replace(what)
        start = time.perf_counter()
        if self._alone is None:
            self._alone = Processes(1)
        try:
            self._alone.check()
        except Exception as error:  # A process that can't begin says nothing of the order.
            self._dismiss()
            staying.append(evolve(task, stays=f"processes can't start: {first_line(error)}"))
            return
        try:
            future = self._alone.submit(order, self._storages(order.parcel))
            self._wait({future: (task, order, start)})
            reply = future.result()
        except PluginError:
            raise
        except Exception as error:  # Of the executor: what a backend raises is in the reply.
            self._dismiss()
            seconds = time.perf_counter() - start
            yield Done(task, error=_death(task, error), seconds=seconds, died=True)
            return
        if not self._lost:
            self._dismiss()
        yield from self._read(task, reply, time.perf_counter() - start, staying)

    def _dismiss(self) -> None:
        if self._alone is not None:
            self._alone.close()
            self._alone = None

    def _replace(self, what: str) -> None:
        """Go on with fresh processes, in place of an executor that lost an order."""
        _warn(f"a worker was lost ({what}); going on with new processes of this machine")
        self.lane.close()
        if not isinstance(self.lane, Processes):
            self.lane = Processes(1)

    def close(self) -> None:
        """End orders that are not done, and our own processes; keep what is done."""
        for future, (task, _, _) in self._orders.items():
            if not future.cancel() and future.done() and not future.exception():
                self._keep(future.result(), task)
        self._orders.clear()
        self._dismiss()
        self.lane.close()

    def _keep(self, reply: Reply, task: Task) -> None:
        """Put what a worker sent into the cache of this machine; ours have done so themselves."""
        if self.cache and reply.entry and not self._shares:
            self.cache.store(Entry.from_bytes(reply.entry, "a worker's reply", task.key))


def _warn(text: str) -> None:
    warnings.warn(f"executor: {text}", EtdevWarning, stacklevel=2)


def _death(task: Task, error: BaseException) -> CompileError:
    died = compile_error(task.call.jobs[0], f"two processes died of it, {first_line(error)}")
    died.__cause__ = error
    return died


def _size(call: Call) -> int:
    return sum(len(job.partition.nodes) for job in call.jobs)
