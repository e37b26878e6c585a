"""The scoreboard: what became of each check, as a line for a README and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

from attrs import asdict, frozen

from etdev.hookspecs import API
from etdev.testing.checks import CHECKS, Broken, Check, Requirements, Skipped, Subject, perform

# A plugin that can't plan fails everywhere; this one says why.
FIRST = "claims"


@frozen
class Result:
    """What became of a check.

    Args:
        check: Its name.
        outcome: `kept`, `broken` or `skipped`.
        text: Why it is broken or skipped.
    """

    check: str
    outcome: str
    text: str = ""


@frozen
class Scoreboard:
    """The results of a plugin.

    Args:
        plugin: Its name.
        results: One for each check.
    """

    plugin: str
    results: tuple[Result, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the checks that it doesn't keep to."""
        return tuple(r.check for r in self.results if r.outcome == "broken")

    @property
    def badge(self) -> str:
        """One line: `etdev hooks 1: 15 of 15 kept` or what is missing."""
        counts = Counter(result.outcome for result in self.results)
        line = f"etdev hooks {API}: {counts['kept']} of {len(self.results)} kept"
        more = [f"{counts[kind]} {kind}" for kind in ("broken", "skipped") if counts[kind]]
        return ", ".join([line, *more])

    def to_json(self) -> str:
        """The results as JSON text."""
        return json.dumps({"badge": self.badge, "hooks": API, **asdict(self)}, indent=2)


def run(
    make: Callable[[], object],
    requirements: Requirements | None = None,
    checks: Sequence[Check] | None = None,
) -> Scoreboard:
    """Hold a plugin to the contract.

    Args:
        make: Makes the plugin, a new one each time; its class will do.
        requirements: What may be asked of it.
        checks: Some of `CHECKS`; all if None.
    """
    subject = Subject(make, requirements or Requirements())
    checks = CHECKS if checks is None else checks
    results: list[Result] = []
    for check in checks:
        results.append(result_of(check, subject, results))
    return Scoreboard(subject.name, tuple(results))


def result_of(check: Check, subject: Subject, earlier: Sequence[Result] = ()) -> Result:
    """Do a check, unless an earlier one says that all that plan would fail like it."""
    if any(result.check == FIRST and result.outcome == "broken" for result in earlier):
        return Result(check.name, "skipped", f"it doesn't keep to {FIRST}")
    try:
        perform(check, subject)
    except Skipped as reason:
        return Result(check.name, "skipped", str(reason))
    except Broken as error:
        return Result(check.name, "broken", str(error))
    return Result(check.name, "kept")
