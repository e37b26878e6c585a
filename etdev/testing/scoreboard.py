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
from etdev.testing.simulation import Simulator
from etdev.testing.subject import Calls, Requirements, Skipped, Subject

# A plugin that can't plan fails every check; this one gives the reason.
FIRST = "claims"


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
        """A line such as `etdev hooks 1: 22 of 22 kept`, with the number of other results."""
        counts = Counter(result.outcome for result in self.results)
        line = f"etdev hooks {API}: {counts['kept']} of {len(self.results)} kept"
        more = [f"{counts[kind]} {kind}" for kind in ("broken", "skipped") if counts[kind]]
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
        simulators: Functions for backends that ExecuTorch's runtime lacks, by backend name:
            `simulate(payload, inputs)` returns the outputs. With an argument `data` it gets the
            delegate's named data, bytes by key; with `compile_specs` the compile specs.
        models: Models of your own, and the arguments of each call of them.
    """
    subject = Subject(make, requirements or Requirements(), simulators or {}, models)
    checks = CHECKS if checks is None else checks
    results: list[Result] = []
    for check in checks:
        results.append(result_of(check, subject, results))
    return Scoreboard(subject.name, tuple(results), subject.requirements.opt_outs)


def result_of(check: Check, subject: Subject, earlier: Sequence[Result] = ()) -> Result:
    """Make a check, unless the plugin failed the first one, which all others need."""
    if any(result.check == FIRST and result.outcome == "broken" for result in earlier):
        return Result(check.name, "skipped", f"it doesn't keep to {FIRST}")
    programs.prepare()
    subject.notes.clear()
    subject.unrun = ""
    settings = global_settings.read()
    try:
        check.call(subject)
    except Skipped as reason:
        return Result(check.name, "skipped", str(reason))
    except Exception as error:
        said = str(error) if isinstance(error, (EtdevError, AssertionError)) else first_line(error)
        text = f"{check.name}: {check.wants}\n  why: {check.why}\n  what happened: {said}"
        for program in programs.used:
            text += f"\n  the smallest graph:\n{str(program.graph).strip()}"
        # A plugin that breaks a rule may have changed the programs.
        programs.forget()
        return Result(check.name, "broken", text)
    finally:
        # The next check must not depend on what a plugin changed during this one.
        global_settings.put_back(settings)
    if subject.unrun:
        why = f"this runtime does not have {subject.unrun}, and no simulator is given"
        return Result(check.name, "skipped", f"compiled, but not run: {why}")
    return Result(check.name, "kept", "; ".join(subject.notes))
