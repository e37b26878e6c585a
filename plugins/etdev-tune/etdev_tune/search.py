"""Search from the baselines to the best candidate that the budget allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field

from etdev.registry.plugin import Plugin
from etdev.schema.stages import Listener
from etdev_tune import candidate as candidates
from etdev_tune import options
from etdev_tune.attempts import Attempt, hopeless, reason, records_of
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import Candidate
from etdev_tune.clock import Clock
from etdev_tune.contest import LEAST_OF_DUEL, Contest, is_clear
from etdev_tune.exchange import BUDGET_SPENT, UNTRIED, Failure
from etdev_tune.record import Record
from etdev_tune.report import Estimate, Move
from etdev_tune.setup import Setup

# The fewest rounds of the race, for an estimate.
_ROUNDS = 3
SPENT = "not tried: the budget is spent"


@define(eq=False)
class Search:
    """Search for the best candidate.

    Args:
        setup: The user's registry and arguments.
        builder: Lowers candidates.
        contest: Compares them.
        clock: The budget.
        listener: Called with a stage and a detail.
        attempts: All candidates so far.
        moves: All changes that were considered.
        finished: Nothing was left out for lack of time.
        useful: The plugins that claim some of the model.
    """

    setup: Setup
    builder: Builder
    contest: Contest
    clock: Clock
    listener: Listener | None = None
    attempts: list[Attempt] = field(factory=list)
    moves: list[Move] = field(factory=list)
    finished: bool = True
    useful: tuple[str, ...] = ()
    _holder: Attempt | None = None
    _build_s: float = 0.0

    def run(self) -> None:
        """Try plugins alone, their orders, and their options.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        names = self.setup.names
        untuned, *alone = candidates.always(names)
        first = [self.attempt(untuned)]
        self._estimate(len(alone) + 1)
        first += [self._always(candidate) for candidate in alone]
        fit, unfit = self._useful(first)
        self.useful = tuple(fit)
        if unfit and fit and self.has_time():
            first.append(self.attempt(candidates.untuned_without(fit, unfit)))
        orders_left = [c for c in candidates.orders_of(fit) if c.plugins != names]
        first += [self.attempt(candidate) for candidate in self._within(orders_left)]
        # Last: its kernels may be so slow that the time limit has to come from other candidates.
        first.append(self._always(candidates.portable()))
        winner = self.contest.race(records_of(first), "orders")
        self._holder = next((a for a in first if winner and a.record is winner), None)
        self._options(first)
        if self.best() is None:
            raise hopeless(self.attempts, self.contest.tolerance)

    def best(self) -> Attempt | None:
        """Return the winner of the race of orders, or the last candidate that beat the best one."""
        return self._holder

    def fallback(self) -> Attempt | None:
        """Return the untuned plan, or the best baseline if that is not within the tolerance."""
        tolerance = self.contest.tolerance
        own = [a for a in self.attempts if a.candidate.always]
        admitted = [a for a in own if a.record and a.record.admitted(tolerance)]
        untuned = [a for a in admitted if a.candidate.name.startswith(candidates.UNTUNED)]
        return next(iter(untuned), None) or min(admitted, key=self._cost, default=None)

    def _cost(self, attempt: Attempt) -> float:
        assert attempt.record
        return self.contest.cost(attempt.record)

    def _options(self, first: Sequence[Attempt]) -> None:
        """Try every option of few values on the most promising orders."""
        for start in self._starts(first):
            for name, words, move in list(self._option_moves(start.candidate)):
                if not self.has_time():
                    self.note(words, start.candidate.name, False, SPENT)
                    continue
                self.consider(self.attempt(move), words, f"options {name}")

    def _useful(self, first: Sequence[Attempt]) -> tuple[list[str], list[str]]:
        """Return the plugins that claim some of the model, and those that can't compile here."""
        names = self.setup.names
        alone = {a.candidate.plugins: a for a in first if len(a.candidate.plugins) == 1}
        refused = [a for a in alone.values() if a.record is None and not a.is_untried]
        unfit = [name for name in names if any((name,) == a.candidate.plugins for a in refused)]
        idle = [
            name
            for name in names
            if (known := alone.get((name,))) and known.record and not known.record.build.delegates
        ]
        return [name for name in names if name not in (*unfit, *idle)], unfit

    def _starts(self, first: Sequence[Attempt]) -> list[Attempt]:
        """Return the best order in the tolerance, the best outside of it, and the longest."""
        ran = [a for a in first if a.record and a.candidate.plugins and a.record.latency]
        ran.sort(key=self._cost)
        tolerance = self.contest.tolerance
        inside = [a for a in ran if a.record and a.record.admitted(tolerance)]
        outside = [a for a in ran if a.record and not a.record.admitted(tolerance)]
        # The fastest first: another option may make a fast candidate right.
        starts = sorted([*inside[:1], *outside[:1]], key=self._cost)
        whole = sorted(ran, key=lambda a: -len(a.candidate.plugins))
        return list(dict.fromkeys([*starts, *whole[:1]]))

    def _option_moves(self, start: Candidate) -> Iterator[tuple[str, str, Candidate]]:
        build = self.builder.build(start)
        owners = {p.plugin for p in build.plan.partitions} if isinstance(build, Build) else set()
        for name in filter(owners.__contains__, start.plugins):
            plugin: Plugin = self.setup.plugins[name]
            fixed = self.setup.entry(name).options
            for words, move in options.moves_of(start, plugin, fixed):
                yield name, words, move

    def consider(
        self, attempt: Attempt, words: str, session: str, predicted: float | None = None
    ) -> bool:
        """Compare a new candidate with the best so far; return True if it is better.

        Args:
            attempt: The candidate.
            words: Description of its change.
            session: Purpose of the rounds.
            predicted: Cost as a multiple of the best one's, as profiles predict it.
        """
        best, record = self.best(), attempt.record
        of = best.candidate.name if best else ""
        if record is None:
            return self.note(words, of, False, f"not taken: {attempt.outcome}", predicted)
        twin = next(known for known in self.attempts if known.record is record)
        if twin is not attempt:
            why = f"not taken: it makes the same .pte as {twin.candidate.name}"
            return self.note(words, of, False, why, predicted)
        if best is None or best.record is None:
            self.contest.race([record], session)
            taken = record.admitted(self.contest.tolerance)
            why = "taken: the first within the tolerance" if taken else self._fault(record)
            self._holder = attempt if taken else None
            return self.note(words, of, taken, why, predicted)
        ratio = self.contest.duel(record, best.record, session)
        if ratio is None:
            return self.note(words, of, False, self._fault(record), predicted)
        if is_clear(ratio):
            self._holder = attempt
        return self.note(words, of, is_clear(ratio), reason(ratio, of), predicted, ratio)

    def _fault(self, record: Record) -> str:
        if record.failure:
            return f"not taken: {record.failure}"
        return f"not taken: its error {record.error:.2g} is above {self.contest.tolerance:g}"

    def note(
        self,
        words: str,
        of: str,
        taken: bool,
        why: str,
        predicted: float | None = None,
        ratio: Estimate | None = None,
    ) -> bool:
        """Note the outcome of a change; return `taken`."""
        self.moves.append(Move(words, of, taken, why, predicted, ratio))
        return taken

    def attempt(self, candidate: Candidate) -> Attempt:
        """Build a candidate, and note it."""
        if self.listener:
            self.listener("build", candidate.name)
        build = self.builder.build(candidate)
        known = self.contest.measurer.record(build) if isinstance(build, Build) else build
        if isinstance(build, Build):
            # An average, since the first candidates load libraries.
            self._build_s = (self._build_s or build.seconds) / 2 + build.seconds / 2
        attempt = Attempt(candidate, known)
        self.attempts.append(attempt)
        return attempt

    def _estimate(self, others: int) -> None:
        """Tell the listener how long the baselines take, now that one is lowered."""
        if not self.listener:
            return
        measurer = self.contest.measurer
        timed = sum(len(case.timed) for case in measurer.cases)
        seconds = others * self._build_s + (others + 1) * _ROUNDS * timed * measurer.policy.seconds
        words = f"{seconds:.0f} s to try the {others + 1} candidates that are always tried"
        if seconds > self.clock.left:
            words += f"; {max(self.clock.left, 0):.0f} s of the budget are left"
        self.listener("estimate", f"about {words}")

    def _always(self, candidate: Candidate) -> Attempt:
        """Build a baseline, unless the budget is spent and there is another one."""
        if self.clock.allows(self._build_s) or not any(known.record for known in self.attempts):
            return self.attempt(candidate)
        self.finished = False
        attempt = Attempt(candidate, Failure(UNTRIED, BUDGET_SPENT))
        self.attempts.append(attempt)
        return attempt

    def _within(self, some: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates for which the budget lasts."""
        for candidate in some:
            if not self.has_time():
                return
            yield candidate

    def has_time(self) -> bool:
        """Return True if there is time for another candidate, and for the confirmation."""
        process_s = self.contest.measurer.usual_s or 0.0
        processes = LEAST_OF_DUEL + self.contest.reserve
        # For lowering it now, and the chosen one again in the end.
        enough = self.clock.allows(2 * self._build_s + processes * process_s)
        self.finished = self.finished and enough
        return enough
