"""Lanes: the executors that orders can be given to, each with its way for large weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from attrs import define, field
from torch import Tensor

from etdev.delegate.executors.work import Order, Reply, work

Storages = Sequence[tuple[int, Tensor]]

# Orders that an executor has at a time: enough for many workers, and few weights in memory.
_AHEAD = 64
# Smaller storages go along with the order: to scatter one takes several messages.
_SCATTER_FROM_BYTES = 1 << 16
# A scheduler that takes longer to say who works is frozen, too.
_ANSWER_S = 3.0


class Lane(Protocol):
    """What takes orders."""

    @property
    def limit(self) -> int:
        """How many orders to give it ahead."""

    @property
    def name(self) -> str:
        """Who works there, for people."""

    def submit(self, order: Order, storages: Storages) -> Future[Reply]:
        """Give it an order, with the storages of its weights by number."""

    def close(self) -> None:
        """Let go of what belongs to the lowering."""


@define(eq=False)
class Given:
    """An executor of the user's; the weights go along with each order.

    Args:
        executor: The executor. It stays open.
    """

    executor: Executor
    limit: int = field(default=_AHEAD, init=False)

    @property
    def name(self) -> str:
        """Who works there, for people."""
        return f"a worker of the {type(self.executor).__name__}"

    def submit(self, order: Order, storages: Storages) -> Future[Reply]:
        """Give it an order, with the storages of its weights by number."""
        return self.executor.submit(work, order, *map(self._handle, storages))

    def close(self) -> None:
        """Nothing of ours is there."""

    def _handle(self, storage: tuple[int, Tensor]) -> Any:
        return storage[1].numpy().tobytes()


@define(eq=False)
class Dask(Given):
    """The executor of a Dask client; each large storage is scattered once.

    Args:
        client: The client.
    """

    client: Any
    _scattered: dict[int, Any] = field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """Who works there, for people: the workers that have orders, if the scheduler answers."""
        answers: list[Any] = []
        ask = threading.Thread(target=lambda: answers.append(self.client.processing()), daemon=True)
        ask.start()
        ask.join(_ANSWER_S)
        busy = [
            str(address)
            for address, keys in (answers[0].items() if answers else ())
            if any(str(key).startswith(f"{work.__name__}-") for key in keys)
        ]
        return f"Dask's {' and '.join(busy)}" if busy else "a worker of the Dask cluster"

    def close(self) -> None:
        """Let the cluster forget what was scattered."""
        self._scattered.clear()

    def _handle(self, storage: tuple[int, Tensor]) -> Any:
        number, tensor = storage
        if tensor.numel() < _SCATTER_FROM_BYTES:
            return super()._handle(storage)
        if number not in self._scattered:
            self._scattered[number] = self.client.scatter(super()._handle(storage))
        return self._scattered[number]


def lane_of(executor: Executor) -> Lane:
    """The lane of an executor that the user gave."""
    # `Client.get_executor()` keeps its client in a private field, and has no other way to scatter.
    client = getattr(executor, "_client", None)
    if type(executor).__module__.startswith("distributed.") and hasattr(client, "scatter"):
        return Dask(executor, client)
    return Given(executor)
