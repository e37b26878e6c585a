"""The bytes of shared libraries that a C++ program needs for a `.pte`, as etdev-cpp counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from etdev.pte.artifact import MethodArtifact
from etdev.registry import extensions

# Counts the bytes for methods; refuses more than a limit, or what it can't count under a limit.
Counter = Callable[[Iterable[MethodArtifact], int | None], int]


def counter() -> Counter:
    """Return the function that counts them.

    Raises:
        PluginError: etdev-cpp is not installed.
    """
    found: Counter = extensions.load(
        extensions.BUDGETS,
        "runtime_bytes",
        lambda value: "" if callable(value) else "is not a function",
    )
    return found
