"""Orders: a task, named and made ready to travel."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from etdev.delegate.cache.cache import Cache
from etdev.delegate.cache_session import Memory
from etdev.delegate.compiler_calls import context
from etdev.delegate.executors.storages import Weights
from etdev.delegate.executors.travel import pack
from etdev.delegate.executors.work import Order
from etdev.delegate.settings import settings
from etdev.delegate.tasks import Task


def named(task: Task, memory: Memory) -> Task:
    """A task with its key, or with why it stays."""
    if task.key or task.stays:
        return task
    with context(task.plugin, task.call.first.device) as changes:
        return memory.named(task, changes)


def order_of(task: Task, known: Weights, cache: Cache | None) -> Order:
    """What a worker is asked to do.

    Args:
        task: The task, which has a key.
        known: Gets the storages of its weights.
        cache: Where the worker keeps what it compiles.

    Raises:
        Stays: Something of it can't travel.
    """
    parcel = pack(task.call, task.plugin, known)
    return Order(parcel, task.key, settings(), _cache_settings(cache), task.limit_s)


def _cache_settings(cache: Cache | None) -> dict[str, Any] | None:
    """What a worker makes the same cache of."""
    return asdict(cache.settings) if cache and cache.enabled else None
