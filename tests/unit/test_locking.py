"""Locks: what differs is named, and a compiler that doesn't repeat itself is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.errors import LockError
from etdev.locking import Lock


def lock(payload: str, nodes_key: str = "k", torch: str = "2.13.0") -> Lock:
    partition = {
        "partition": "openvino_0",
        "plugin": "openvino",
        "backend": "OpenvinoBackend",
        "device": "cpu",
        "key": nodes_key,
        "payload": payload,
    }
    return Lock({"versions": {"torch": torch}}, {"forward": [partition]}, {".pte": payload})


def test_other_bytes_of_the_same_partitions_are_laid_at_the_compilers_door() -> None:
    with pytest.raises(LockError) as caught:
        lock("a").check(lock("b"), Path("etdev.lock"))
    assert str(caught.value) == (
        "etdev.lock: does not match this lowering: "
        "partition openvino_0 of method 'forward' has other bytes; "
        "not every compiler writes the same bytes in another process: lower with the cache that "
        "the locked .pte was made with, or lock it again without --locked"
    )


@pytest.mark.parametrize("other", [lock("b", "other"), lock("b", torch="2.14.0")])
def test_bytes_of_something_else_are_not(other: Lock) -> None:
    with pytest.raises(LockError, match="; restore that, or lock it again"):
        lock("a").check(other, Path("etdev.lock"))


def test_the_same_lock_is_not_refused() -> None:
    lock("a").check(lock("a"), Path("etdev.lock"))


def test_what_is_new_or_gone_is_refused_once() -> None:
    one, other = lock("a"), lock("a")
    more = Lock(other.setup, {**other.program, "decode": other.program["forward"]}, other.files)
    with pytest.raises(LockError) as caught:
        one.check(more, Path("etdev.lock"))
    assert caught.value.what == (
        "does not match this lowering: the list of partitions of method 'decode' was missing, and "
        "is openvino_0"
    )
    with pytest.raises(LockError, match="the list of partitions of method 'decode' was openvino_0"):
        more.check(one, Path("etdev.lock"))
