"""Search from the baselines to the best candidate that the budget allows."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from etdev.schema.stages import Listener
from etdev_tune import candidate as candidates
from etdev_tune import options
from etdev_tune.attempts import Attempt, hopeless, reason
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import Candidate
from etdev_tune.clock import Clock
from etdev_tune.contest import LEAST_OF_DUEL, RESERVE, Contest, is_clear
from etdev_tune.exchange import BUDGET_SPENT, UNTRIED, Failure
from etdev_tune.record import Record
from etdev_tune.report import Change, Estimate
from etdev_tune.setup import Setup

# The fewest rounds of the race, for an estimate.
_ROUNDS = 3


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
    listener: Listener
    attempts: list[Attempt] = field(factory=list)
    moves: list[Change] = field(factory=list)
    finished: bool = True
    useful: tuple[str, ...] = ()
    _best: Attempt | None = None
    _build_s: float = 0.0

    def run(self) -> None:
        """Try plugins alone, their orders, and their options.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        names = self.setup.names
        untuned, *alone = candidates.always(names)
        self.attempt(untuned)
        self._estimate(len(alone) + 1)
        for candidate in alone:
            self._always(candidate)
        unfit = self._sort_plugins()
        if unfit and self.useful and self.has_time():
            self.attempt(candidates.untuned_without(self.useful, unfit))
        for candidate in candidates.orders_of(self.useful):
            if candidate.plugins != names and self.has_time():
                self.attempt(candidate)
        # Last: its kernels may be so slow that the time limit has to come from other candidates.
        self._always(candidates.portable())
        winner = self.contest.race([a.record for a in self.attempts if a.record], "orders")
        self._best = next((a for a in self.attempts if winner and a.record is winner), None)
        for start in self._starts():
            for name, words, move in list(self._option_moves(start.candidate)):
                self.change(move, words, f"options {name}")
        # Raises an error if no candidate is within the tolerance.
        self.best()

    def best(self) -> Attempt:
        """Return the winner of the race of orders, or the last candidate that beat the best one.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        if self._best is None:
            raise hopeless(self.attempts, self.contest.tolerance)
        return self._best

    def fallback(self) -> Attempt | None:
        """Return the untuned plan, or the best baseline if that is not within the tolerance."""
        own = [a for a in self.attempts if a.candidate.always and self._admits(a)]
        untuned = [a for a in own if a.candidate.name.startswith(candidates.UNTUNED)]
        return next(iter(untuned), None) or min(own, key=self._cost, default=None)

    def change(self, candidate: Candidate, words: str, session: str) -> bool:
        """Build a candidate, and compare it with the best so far, if the budget lasts.

        Args:
            candidate: The candidate.
            words: Description of its change.
            session: Purpose of the rounds.

        Returns:
            True if the candidate is the best one now.
        """
        best = self._best
        of = best.candidate.name if best else ""
        if not self.has_time():
            return self._note(words, of, False, "not tried: the budget is spent")
        attempt = self.attempt(candidate)
        record = attempt.record
        if record is None:
            return self._note(words, of, False, f"not taken: {attempt.outcome}")
        twin = next(known for known in self.attempts if known.record is record)
        if twin is not attempt:
            why = f"not taken: it makes the same .pte as {twin.candidate.name}"
            return self._note(words, of, False, why)
        if best is None or best.record is None:
            self.contest.race([record], session)
            taken = record.admitted(self.contest.tolerance)
            self._best = attempt if taken else None
            why = "taken: the first within the tolerance" if taken else self._fault(record)
            return self._note(words, of, taken, why)
        ratio = self.contest.duel(record, best.record, session)
        if ratio is None:
            return self._note(words, of, False, self._fault(record))
        if is_clear(ratio):
            self._best = attempt
        return self._note(words, of, is_clear(ratio), reason(ratio, of), ratio)

    def attempt(self, candidate: Candidate) -> Attempt:
        """Build a candidate, and keep it in the list of attempts."""
        self.listener("build", candidate.name)
        build = self.builder.build(candidate)
        if isinstance(build, Build):
            # An average, since the first candidates load libraries.
            self._build_s = (self._build_s or build.seconds) / 2 + build.seconds / 2
            return self._added(candidate, self.contest.measurer.record(build))
        return self._added(candidate, build)

    def has_time(self) -> bool:
        """Return True if there is time for another candidate, and for the confirmation."""
        process_s = self.contest.measurer.usual_s or 0.0
        # For lowering it now, and the chosen one again in the end.
        enough = self.clock.allows(2 * self._build_s + (LEAST_OF_DUEL + RESERVE) * process_s)
        self.finished = self.finished and enough
        return enough

    def _always(self, candidate: Candidate) -> None:
        """Build a baseline, unless the budget is spent and there is another one."""
        if self.clock.allows(self._build_s) or not any(known.record for known in self.attempts):
            self.attempt(candidate)
        else:
            self.finished = False
            self._added(candidate, Failure(UNTRIED, BUDGET_SPENT))

    def _added(self, candidate: Candidate, outcome: Record | Failure) -> Attempt:
        self.attempts.append(Attempt(candidate, outcome))
        return self.attempts[-1]

    def _note(
        self, words: str, of: str, taken: bool, why: str, ratio: Estimate | None = None
    ) -> bool:
        """Note the outcome of a change; return `taken`."""
        self.moves.append(Change(words, of, taken, why, ratio))
        return taken

    def _fault(self, record: Record) -> str:
        if record.failure:
            return f"not taken: {record.failure}"
        return f"not taken: its error {record.error:.2g} is above {self.contest.tolerance:g}"

    def _admits(self, attempt: Attempt) -> bool:
        return attempt.record is not None and attempt.record.admitted(self.contest.tolerance)

    def _cost(self, attempt: Attempt) -> float:
        assert attempt.record
        return self.contest.cost(attempt.record)

    def _sort_plugins(self) -> list[str]:
        """Note the plugins that claim some of the model; return those that can't compile here."""
        unfit: list[str] = []
        idle: list[str] = []
        for attempt in self.attempts:
            if len(attempt.candidate.plugins) == 1 and not attempt.is_untried:
                if attempt.record is None:
                    unfit += attempt.candidate.plugins
                elif not attempt.record.build.delegates:
                    idle += attempt.candidate.plugins
        self.useful = tuple(name for name in self.setup.names if name not in (*unfit, *idle))
        return unfit

    def _starts(self) -> list[Attempt]:
        """Return the best order in the tolerance, the best outside of it, and the longest."""
        ran = [a for a in self.attempts if a.candidate.plugins and a.record and a.record.latency]
        ran.sort(key=self._cost)
        inside = [a for a in ran if self._admits(a)]
        outside = [a for a in ran if not self._admits(a)]
        # The fastest first: another option may make a fast candidate right.
        starts = sorted([*inside[:1], *outside[:1]], key=self._cost)
        longest = max(ran, key=lambda a: len(a.candidate.plugins), default=None)
        return list(dict.fromkeys([*starts, *([longest] if longest else [])]))

    def _option_moves(self, start: Candidate) -> Iterator[tuple[str, str, Candidate]]:
        build = self.builder.build(start)
        owners = {p.plugin for p in build.plan.partitions} if isinstance(build, Build) else set()
        for name in filter(owners.__contains__, start.plugins):
            fixed = self.setup.registry.entry(name).options
            for words, move in options.moves_of(start, self.setup.plugins[name], fixed):
                yield name, words, move

    def _estimate(self, others: int) -> None:
        """Tell the listener how long the baselines take, now that one is lowered."""
        measurer = self.contest.measurer
        timed = sum(len(case.timed) for case in measurer.cases)
        seconds = others * self._build_s + (others + 1) * _ROUNDS * timed * measurer.policy.seconds
        words = f"{seconds:.0f} s to try the {others + 1} candidates that are always tried"
        if seconds > self.clock.left:
            words += f"; {max(self.clock.left, 0):.0f} s of the budget are left"
        self.listener("estimate", f"about {words}")
