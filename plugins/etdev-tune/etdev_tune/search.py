"""Search from the baselines to the best candidate that the budget allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from attrs import define, evolve, field

from etdev import Plan
from etdev.errors import TuneError
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import UNTUNED, Candidate, baselines, orders_of
from etdev_tune.comparison import LEAST, RESERVE, Clock, Comparison
from etdev_tune.exchange import Failure
from etdev_tune.measurer import Listener
from etdev_tune.moves import moves_of, option_moves
from etdev_tune.record import Record
from etdev_tune.report import Limits


@define(eq=False)
class Attempt:
    """A candidate with the record of its build, or with the reason why it was not built.

    Args:
        why: Why the search went on from it, or didn't; empty for baselines.
        predicted_error: Its error, as foretold before it was measured.
        predicted_ms: Its latency, as foretold before it was measured.
    """

    candidate: Candidate
    outcome: Record | Failure
    why: str = ""
    predicted_error: float | None = None
    predicted_ms: float | None = None

    @property
    def record(self) -> Record | None:
        """Record of the build, if there is one."""
        return self.outcome if isinstance(self.outcome, Record) else None

    @property
    def plan(self) -> Plan:
        """Plan of the build."""
        assert self.record
        return self.record.build.plan

    @property
    def is_untried(self) -> bool:
        """Return True if the budget was spent before the candidate was measured."""
        return bool(self.record and not self.record.rounds and not self.record.failure)

    @property
    def fault(self) -> str:
        """Why the candidate can't be taken."""
        if self.is_untried:
            return "the budget was spent"
        if isinstance(self.outcome, Failure):
            return str(self.outcome)
        return str(self.outcome.failure or f"error {self.outcome.error:.2g}")


@define(eq=False)
class Search:
    """Search for the best candidate.

    Args:
        attempts: All candidates so far.
        finished: Nothing was left out for lack of time.
    """

    builder: Builder
    comparison: Comparison
    clock: Clock
    listener: Listener
    attempts: list[Attempt] = field(factory=list)
    finished: bool = True
    _best: Attempt | None = None
    _build_s: float = 0.0

    def run(self) -> None:
        """Try plugins alone, their orders, their options, and then changes of the best.

        Raises:
            TuneError: No candidate is within the limits.
        """
        names = tuple(self.builder.setup.plugins)
        *plugins, portable = baselines(names)
        for candidate in plugins:
            self._baseline(candidate)
        useful = self._useful(names)
        if useful and not self.attempts[0].record:
            self._baseline(Candidate(f"{UNTUNED}: {', '.join(useful)}", useful, always=True))
        known = {attempt.candidate.plugins for attempt in self.attempts}
        for candidate in orders_of(useful):
            if candidate.plugins not in known:
                self._change(candidate)
        # Last: its kernels may be so slow that the time limit has to come from other candidates.
        self._baseline(portable)
        for candidate in [move for start in self._starts() for move in self._options(start)]:
            self._change(candidate)
        self._move(useful)

    def best(self) -> Attempt:
        """Return the last candidate that was clearly better than the best one before it.

        Raises:
            TuneError: No candidate is within the limits.
        """
        if self._best is None:
            raise _hopeless(self.attempts, self.comparison.limits)
        return self._best

    def fallback(self) -> Attempt | None:
        """Return the untuned plan, or the best baseline if that is not within the limits."""
        own = [a for a in self.attempts if a.candidate.always and self._admits(a)]
        untuned = [a for a in own if a.candidate.name.startswith(UNTUNED)]
        return next(iter(untuned), None) or min(own, key=self._cost, default=None)

    def facts(self) -> dict[str, Any]:
        """Return what the report has besides the candidates."""
        return {}

    def has_time(self) -> bool:
        """Return True if there is time for another candidate, and for the confirmation."""
        process_s = self.comparison.measurer.usual_s or 0.0
        # For lowering it now, and the chosen one again in the end.
        enough = self.clock.allows(2 * self._build_s + (LEAST + RESERVE) * process_s)
        self.finished = self.finished and enough
        return enough

    def _attempt(self, candidate: Candidate, **predictions: Any) -> Attempt:
        """Build a candidate, and keep it in the list of attempts."""
        self.listener("build", candidate.name)
        build = self.builder.build(candidate)
        if isinstance(build, Build):
            # An average, since the first candidates load libraries.
            self._build_s = (self._build_s or build.seconds) / 2 + build.seconds / 2
            done = Attempt(candidate, self.comparison.measurer.record(build), **predictions)
        else:
            done = Attempt(candidate, build, **predictions)
        self.attempts.append(done)
        return done

    def _baseline(self, candidate: Candidate) -> None:
        """Try a baseline, unless the budget is spent and there is another one."""
        if self.clock.allows(self._build_s) or not any(known.record for known in self.attempts):
            self._try(candidate)
        else:
            self.finished = False

    def _change(self, candidate: Candidate) -> None:
        """Try a candidate, if the budget lasts, and say whether the search goes on from it."""
        if not self.has_time():
            return
        attempt = self._try(candidate)
        record = attempt.record
        cost = self.comparison.cost(record) if record and self._admits(attempt) else None
        if cost and not self._is_known(attempt):
            taken = "taken" if attempt is self._best else "not taken"
            assert self.comparison.plain
            attempt.why = f"{taken}: {cost} times {self.comparison.plain.build.candidate.name}"

    def _try(self, candidate: Candidate, **predictions: float | None) -> Attempt:
        """Build and measure a candidate, and go on from it if it is clearly better."""
        attempt, best = self._attempt(candidate, **predictions), self._best
        if attempt.record is None or self._is_known(attempt):
            return attempt
        if best and not self.clock.allows(self.comparison.measurer.usual_s or 0.0):
            return attempt
        before = self.comparison.cost(best.record) if best and best.record else None
        self.comparison.measure(attempt.record, before)
        cost = self.comparison.cost(attempt.record) if self._admits(attempt) else None
        if cost and (not before or self.comparison.is_better(cost, before)):
            self._best = attempt
        return attempt

    def _is_known(self, attempt: Attempt) -> bool:
        """Return True if an earlier candidate has the same bytes."""
        others = (other for other in self.attempts if other is not attempt)
        return any(other.record is attempt.record for other in others)

    def _admits(self, attempt: Attempt) -> bool:
        return attempt.record is not None and attempt.record.admitted(self.comparison.limits)

    def _cost(self, attempt: Attempt) -> float:
        cost = self.comparison.cost(attempt.record) if attempt.record else None
        return cost.value if cost else math.inf

    def _useful(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the plugins that can compile here and claim some of the model."""
        useless = {
            a.candidate.plugins
            for a in self.attempts
            if not (a.record and a.record.build.delegates)
        }
        return tuple(name for name in names if (name,) not in useless)

    def _starts(self) -> list[Attempt]:
        """Return the best order in the limits, the best outside of it, and the longest."""
        ran = [a for a in self.attempts if a.candidate.plugins and a.record and a.record.latency]
        ran.sort(key=self._cost)
        inside = [a for a in ran if self._admits(a)]
        outside = [a for a in ran if not self._admits(a)]
        # The fastest first: another option may make a fast candidate right.
        starts = sorted([*inside[:1], *outside[:1]], key=self._cost)
        longest = max(ran, key=lambda a: len(a.candidate.plugins), default=None)
        return list(dict.fromkeys([*starts, *([longest] if longest else [])]))

    def _options(self, start: Attempt) -> Iterator[Candidate]:
        """Yield the changes of one option of the plugins that own some of the model."""
        owners, setup = {p.plugin for p in start.plan.partitions}, self.builder.setup
        for name in filter(owners.__contains__, start.candidate.plugins):
            fixed = setup.registry.entry(name).options
            yield from option_moves(start.candidate, setup.plugins[name], fixed)

    def _move(self, plugins: tuple[str, ...]) -> None:
        """Try parts of the model under other owners.

        The effect of a move is measured end to end, since costs of parts don't add up.
        """
        built = [attempt for attempt in self.attempts if attempt.record]
        if not built:
            return
        asked = max(built, key=lambda a: len(a.candidate.plugins))
        for move in list(moves_of(asked.plan, self.best().plan, plugins)):
            self._change(self.best().candidate.with_pins(move.pins, move.owner, move.name))


def _hopeless(attempts: list[Attempt], limits: Limits) -> TuneError:
    """Return the error for a search without a candidate that runs within the limits."""
    faults = [f"{a.candidate.name}: {_exceeded(a, limits) or a.fault}" for a in attempts[:4]]
    what = f"no candidate runs within {limits} ({'; '.join(faults)})"
    cure = "allow more with --tolerance, give more with --budget, or see etdev check"
    return TuneError("candidates", what, cure)


def _exceeded(attempt: Attempt, limits: Limits) -> str:
    """Return the size or metric that a candidate that ran exceeds; empty for another fault."""
    ran = attempt.record and attempt.record.rounds and not attempt.record.failure
    return attempt.record.excess(evolve(limits, error=None)) if attempt.record and ran else ""
