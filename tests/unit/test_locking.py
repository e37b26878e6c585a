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
        "program.forward.openvino_0.payload is b, locked a; "
        "not every compiler writes the same bytes in another process: lower with the cache that "
        "the locked .pte was made with, or lock it again without --locked"
    )


@pytest.mark.parametrize("other", [lock("b", "other"), lock("b", torch="2.14.0")])
def test_bytes_of_something_else_are_not(other: Lock) -> None:
    with pytest.raises(LockError, match="; restore that, or lock it again"):
        lock("a").check(other, Path("etdev.lock"))


def test_the_same_lock_is_not_refused() -> None:
    lock("a").check(lock("a"), Path("etdev.lock"))
