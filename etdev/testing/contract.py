"""The contract of a plugin as a list of checks, and the error about a broken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from etdev.errors import EtdevError, first_line
from etdev.testing import global_settings, programs
from etdev.testing.subject import Skipped, Subject


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


class Broken(AssertionError):
    """A check that failed: the requirement, its reason, the smallest graph, and the error."""

    def __init__(self, check: Check, graph: str, error: BaseException) -> None:
        said = str(error) if isinstance(error, (EtdevError, AssertionError)) else first_line(error)
        text = f"{check.name}: {check.wants}\n  why: {check.why}\n  what happened: {said}"
        super().__init__(text + (f"\n  the smallest graph:\n{graph}" if graph else ""))
        self.check = check


def perform(check: Check, subject: Subject) -> None:
    """Make a check; raise `Broken` if the plugin breaks it, and `Skipped` if it can't be made."""
    programs.prepare()
    subject.unrun = ""
    settings = global_settings.read()
    try:
        check.call(subject)
    except Skipped:
        raise
    except Exception as error:
        graph = "".join(str(program.graph).strip() for program in programs.used)
        # A plugin that breaks a rule may have changed the programs.
        programs.forget()
        raise Broken(check, graph, error) from error
    finally:
        # The next check must not depend on what a plugin changed during this one.
        global_settings.put_back(settings)
    if subject.unrun:
        why = f"this runtime does not have {subject.unrun}, and no simulator is given"
        raise Skipped(f"compiled, but not run: {why}")


CHECKS: list[Check] = []


def contract(wants: str, why: str) -> Callable[[Callable[[Subject], None]], Any]:
    """Turn a function into a check of the contract."""

    def add(call: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(call.__name__, wants, why, call))
        return call

    return add
