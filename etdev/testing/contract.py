"""The contract of a plugin as a list of checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from etdev.testing.subject import Subject


@frozen(eq=False)
class Check:
    """A part of the contract.

    Args:
        name: Its name in reports.
        wants: The requirement in a sentence.
        why: The consequence for users if a plugin breaks it.
        call: Function that raises an AssertionError or an error of the host.
    """

    name: str
    wants: str
    why: str
    call: Callable[[Subject], None]


CHECKS: list[Check] = []


def contract(wants: str, why: str) -> Callable[[Callable[[Subject], None]], Any]:
    """Turn a function into a check of the contract."""

    def add(call: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(call.__name__, wants, why, call))
        return call

    return add
