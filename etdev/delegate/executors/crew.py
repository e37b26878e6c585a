"""The crew: who compiles what, and what happens if a worker is lost.

An executor of the user's gets all that can travel. Processes of our own get what is worth it, while
this one compiles from the other end of the list. What is lost with its worker is given to a fresh
process, alone; if that dies, too, the backend is taken to be the reason.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait

from attrs import define, evolve, field
from torch import Tensor

from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.packing import unpacked
from etdev.delegate.cache_session import Memory
from etdev.delegate.compiler_calls import Call, compile_error
from etdev.delegate.executors.lanes import Lane
from etdev.delegate.executors.orders import named, order_of
from etdev.delegate.executors.plain import Stays
from etdev.delegate.executors.processes import Processes
from etdev.delegate.executors.retry import Retry, UnstartableError, patience_s
from etdev.delegate.executors.storages import Weights
from etdev.delegate.executors.travel import Parcel
from etdev.delegate.executors.work import ONE_AT_A_TIME, Order, Reply, failure
from etdev.delegate.executors.worth import HERE, Worth
from etdev.delegate.tasks import Done, Task
from etdev.errors import CacheError, CompileError, EtdevWarning, first_line
from etdev.registry.watchdog import waiting_for

# Compiles a task in this process.
Here = Callable[[Task], Done]


@define(eq=False)
class Crew:
    """Workers, and this process.

    Args:
        lane: Takes orders.
        memory: Where the workers keep what they compile, and what is known of the weights.
        begun: Told of each task when its compilation begins, or is ordered.
    """

    lane: Lane
    memory: Memory = field(factory=Memory)
    begun: Callable[[Task], None] | None = None
    _weights: Weights = field(factory=Weights, init=False)
    _orders: dict[Future[Reply], tuple[Task, Order, float]] = field(factory=dict, init=False)
    _lost: deque[tuple[Task, Order, str]] = field(factory=deque, init=False)
    _retry: Retry = field(factory=Retry, init=False)
    _worth: Worth = field(factory=Worth, init=False)

    def run(self, tasks: Sequence[Task], here: Here) -> Iterator[Done]:
        """Compile tasks, in any order.

        Args:
            tasks: The tasks.
            here: Compiles one in this process.
        """
        # Large ones first, so that none is left for the end; the small end is for this process.
        order = self._worth.pace.order([task.call for task in tasks])
        waiting = deque(sorted(tasks, key=lambda task: order(task.call)))
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
                last = waiting.pop()
                stays = last.stays or self._worth.stays(last.call, self._sent, self.lane)
                yield self._here(evolve(last, stays=stays), here)
            elif self._orders and (task := self._back()):
                yield self._here(task, here)
            elif self._orders:
                self._wait()
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
            if not self._worth.sends([task.call for task in waiting], self._sent, self.lane):
                break
            task = named(waiting.popleft(), self.memory)
            if not task.key:
                staying.append(task)
                continue
            try:
                with self._worth.sending():
                    self._submit(task, order_of(task, self._weights, self.memory.cache))
            except Stays as error:
                staying.append(evolve(task, stays=str(error)))

    def _submit(self, task: Task, order: Order) -> None:
        if self.begun:
            self.begun(task)
        try:
            future = self.lane.submit(order, self._storages(order.parcel))
        except Exception as error:  # Whatever an executor that can't go on raises.
            self._lose(task, order, first_line(error))
        else:
            self._orders[future] = task, order, time.perf_counter()

    @property
    def _sent(self) -> list[tuple[Call, float]]:
        """What was sent and not answered, with the time at which it was."""
        return [(task.call, start) for task, _, start in self._orders.values()]

    def _storages(self, parcel: Parcel) -> list[tuple[int, Tensor]]:
        return [(number, self._weights.storages[number]) for number in parcel.storages]

    def _taken(self, future: Future[Reply], staying: deque[Task]) -> Iterator[Done]:
        """What came of an order that is done, unless it was lost or has to stay."""
        task, order, start = self._orders.pop(future)
        self._worth.answered()
        try:
            reply = future.result()
        except (Exception, CancelledError) as error:
            self._lose(task, order, first_line(error))
            return
        yield from self._read(task, reply, time.perf_counter() - start, staying)

    def _read(
        self, task: Task, reply: Reply, seconds: float, staying: deque[Task]
    ) -> Iterator[Done]:
        if reply.error:
            yield Done(task, error=failure(reply), seconds=seconds)
            return
        try:
            if reply.stays:
                raise Stays(reply.stays)
            entry = Entry.from_bytes(reply.entry, "a worker's reply", task.key)
            weights = self.memory.keys.weights
            results = unpacked(entry, len(task.call.jobs), "a worker's reply", weights)
        except (Stays, CacheError) as error:
            staying.append(evolve(task, stays=str(error)))
            return
        self._keep(reply, task)
        yield Done(task, results, entry=entry, seconds=seconds)

    def _wait(self) -> None:
        """Wait for an order; if none is answered in time, all are lost.

        The time of an order that waits for its turn says nothing. So it is the time without any
        answer that counts, as each worker ends by itself what takes it too long.
        """
        tasks = [task for task, _, _ in self._orders.values()]
        limits = [patience_s(task) for task in tasks]
        known = [limit for limit in limits if limit is not None]
        most = max(known) if len(known) == len(limits) else None
        soon = self._worth.patience_s(self._sent, self.lane)
        least = min((limit for limit in (most, soon) if limit is not None), default=None)
        with waiting_for(tasks[0].plugin.name, f"{tasks[0].call.what} in {self._who}"):
            done, _ = wait(self._orders, least, FIRST_COMPLETED)
        if not done and least == most:
            who, orders = self.lane.name, list(self._orders.items())
            self._orders.clear()
            for future, (task, order, _) in orders:
                future.cancel()
                self._lose(task, order, f"no answer in {most:g} s from {who}")

    @property
    def _who(self) -> str:
        """Who works, without asking a cluster."""
        return self.lane.name if self._shares else "a worker"

    def _lose(self, task: Task, order: Order, why: str) -> None:
        self._lost.append((task, order, f"{task.plugin.name}: {task.call.first.where}: {why}"))

    def _back(self) -> Task | None:
        """Take back an order that no worker of ours has begun with, or would be done with later."""
        if not self._shares:
            return None
        late = self._worth.late(self._sent, self.lane)
        for number, future in reversed(list(enumerate(self._orders))):
            if future.cancel() or number == late:
                task, _, _ = self._orders.pop(future)
                return evolve(task, stays=HERE)
        return None

    def _here(self, task: Task, here: Here) -> Done:
        if self.begun:
            self.begun(task)
        limit = patience_s(task)
        if not ONE_AT_A_TIME.acquire(timeout=-1 if limit is None else limit):
            what = f"a thread of this process has been compiling for {limit:g} s, and only one can"
            return Done(task, error=compile_error(task.call.jobs[0], what))
        try:
            done = here(task)
        finally:
            ONE_AT_A_TIME.release()
        if not done.error:
            self._worth.pace.note(task.call, done.seconds)
        return done

    def _again(self, task: Task, order: Order, what: str, staying: deque[Task]) -> Iterator[Done]:
        """Give a lost order to a process that has no other."""
        if not self._retry.begun:
            self._replace(what)
        start = time.perf_counter()
        try:
            reply = self._retry.reply(task, order, self._storages(order.parcel))
        except UnstartableError as error:
            staying.append(evolve(task, stays=f"processes can't start: {error}"))
            return
        except CompileError as error:
            yield Done(task, error=error, seconds=time.perf_counter() - start, died=True)
            return
        if not self._lost:
            self._retry.close()
        yield from self._read(task, reply, time.perf_counter() - start, staying)

    def _replace(self, what: str) -> None:
        """Go on with fresh processes, in place of an executor that lost an order."""
        text = f"executor: a worker was lost ({what}); going on with new processes of this machine"
        warnings.warn(text, EtdevWarning, stacklevel=2)
        self.lane.close()
        if not isinstance(self.lane, Processes):
            self.lane = Processes(1)

    def close(self) -> None:
        """End orders that are not done, and our own processes; keep what is done."""
        for future, (task, _, _) in self._orders.items():
            if not future.cancel() and future.done() and not future.exception():
                self._keep(future.result(), task)
        self._orders.clear()
        self._retry.close()
        self.lane.close()

    def _keep(self, reply: Reply, task: Task) -> None:
        """Put what a worker sent into the cache of this machine; ours have done so themselves."""
        cache = self.memory.cache
        if cache and reply.entry and not self._shares:
            cache.store(Entry.from_bytes(reply.entry, "a worker's reply", task.key))
