"""The scoreboard: the result of each check, as a line for a README and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from attrs import asdict, frozen

from etdev.errors import EtdevError, first_line
from etdev.hookspecs import API
from etdev.testing import checks as checks
from etdev.testing import global_settings, programs
from etdev.testing.contract import CHECKS, Check
from etdev.testing.programs import Calls
from etdev.testing.simulation import Simulator
from etdev.testing.subject import Requirements, Skipped, Subject

# A plugin that breaks one of these would break many of the later ones, for the same reason.
FIRST = ("api", "claims", "repeatable", "values", "own_models")
# A plugin may put anything into its errors.
_LONGEST = 2_000


@frozen
class Result:
    """The result of a check.

    Args:
        check: Its name.
        outcome: `kept`, `broken` or `skipped`.
        text: Why it is broken or skipped, or how it was run.
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
        opt_outs: The requirements below their defaults.
    """

    plugin: str
    results: tuple[Result, ...]
    opt_outs: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the broken checks."""
        return tuple(r.check for r in self.results if r.outcome == "broken")

    @property
    def badge(self) -> str:
        """A line such as `etdev hooks 1: 24 of 24 kept`, with the number of other results."""
        counts = Counter(result.outcome for result in self.results)
        counts["not made"] = len(CHECKS) - len(self.results)
        line = f"etdev hooks {API}: {counts['kept']} of {len(CHECKS)} kept"
        kinds = ("broken", "skipped", "not made")
        more = [f"{counts[kind]} {kind}" for kind in kinds if counts[kind]]
        if simulated := sum(r.outcome == "kept" and bool(r.text) for r in self.results):
            more.append(f"{simulated} in a simulator")
        return ", ".join([line, *more, *self.opt_outs])

    def to_json(self) -> str:
        """Return the results as JSON text."""
        return json.dumps({"badge": self.badge, "hooks": API, **asdict(self)}, indent=2)


def run(
    make: Callable[[], object],
    requirements: Requirements | None = None,
    checks: Sequence[Check] | None = None,
    simulators: Mapping[str, Simulator] | None = None,
    models: Sequence[tuple[torch.nn.Module, Calls]] = (),
) -> Scoreboard:
    """Check a plugin against the contract.

    Args:
        make: Makes the plugin, a new one each time; may be its class.
        requirements: Requirements that it has to meet.
        checks: Some of `CHECKS`; all if None.
        simulators: By backend name, for those that ExecuTorch's runtime lacks; see `Simulator`.
        models: Models of your own, and the arguments of each call of them.
    """
    subject = Subject(make, requirements or Requirements(), simulators or {}, models)
    results: list[Result] = []
    for check in CHECKS if checks is None else checks:
        results.append(result_of(check, subject, results))
    return Scoreboard(subject.name, tuple(results), subject.requirements.opt_outs)


def result_of(check: Check, subject: Subject, earlier: Sequence[Result] = ()) -> Result:
    """Make a check, unless the plugin failed one that this one needs.

    A check is kept only if it has seen the plugin do what it is about, and skipped otherwise.
    """
    for result in earlier:
        if result.check in FIRST and result.outcome == "broken":
            return Result(check.name, "skipped", f"it doesn't keep to {result.check}")
    # Exported before the check, in which a plugin may change settings of torch.
    list(subject.programs(*programs.PROGRAMS))
    programs.used.clear()
    subject.looked, subject.gaps, subject.notes = False, [], []
    subject.settings = global_settings.read()
    try:
        check.call(subject)
    except Skipped as reason:
        return Result(check.name, "skipped", str(reason))
    except Exception as error:
        said = str(error) if isinstance(error, (EtdevError, AssertionError)) else first_line(error)
        text = f"{check.name}: {check.wants}\n  why: {check.why}"
        text += f"\n  what happened: {said[:_LONGEST]}"
        for program in programs.used:
            text += f"\n  the smallest graph:\n{str(program.graph).strip()}"
        # A plugin that breaks a rule may have changed the programs.
        programs.forget()
        return Result(check.name, "broken", text)
    finally:
        # The next check must not depend on what a plugin changed during this one.
        global_settings.put_back(subject.settings)
    if subject.gaps or not subject.looked:
        reasons = dict.fromkeys(subject.gaps or ["it claims nothing of the programs"])
        return Result(check.name, "skipped", "; ".join(reasons))
    return Result(check.name, "kept", "; ".join(subject.notes))
