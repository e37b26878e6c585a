"""The search: from the candidates that are always tried to the best that the budget finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

from etdev.errors import TuneError
from etdev.registry.plugin import Plugin
from etdev.schema.tuning import Estimate, Move
from etdev.stages import Listener
from etdev.tuning import candidate as candidates
from etdev.tuning import options, orders
from etdev.tuning.builder import Build, Builder
from etdev.tuning.candidate import Candidate
from etdev.tuning.clock import Clock
from etdev.tuning.contest import MARGIN, Contest, is_clear
from etdev.tuning.exchange import Failure
from etdev.tuning.ground import Ground
from etdev.tuning.record import Record


@frozen(eq=False)
class Attempt:
    """A candidate that was built, or could not be.

    Args:
        candidate: The candidate.
        outcome: What is known about its bytes, or why there are none.
    """

    candidate: Candidate
    outcome: Record | Failure

    @property
    def record(self) -> Record | None:
        """What is known about its bytes, if there are any."""
        return self.outcome if isinstance(self.outcome, Record) else None


@define(eq=False)
class Search:
    """Searches the best candidate.

    Args:
        ground: What the user decided.
        builder: Lowers candidates.
        contest: Compares them.
        clock: The budget.
        reserve_s: Part of the budget that is kept for the confirmation.
        listener: Told what is going on.
        attempts: All candidates so far.
        moves: All changes that were considered.
        finished: Whether nothing was left out for lack of time.
    """

    ground: Ground
    builder: Builder
    contest: Contest
    clock: Clock
    reserve_s: float = 10.0
    listener: Listener | None = None
    attempts: list[Attempt] = field(factory=list)
    moves: list[Move] = field(factory=list)
    finished: bool = True
    _build_s: float = 0.0

    def run(self) -> Attempt:
        """Search as long as the budget lasts; returns the best.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        names = self.ground.names
        first = [self._attempt(candidate) for candidate in candidates.always(names)]
        fit, unfit = self._useful(first)
        if unfit and fit:
            first.append(self._attempt(candidates.untuned_without(fit, unfit)))
        orders_left = [c for c in orders.orders_of(fit) if c.plugins != names]
        first += [self._attempt(candidate) for candidate in self._within(orders_left)]
        # Last, since its kernels may be so slow that others have to say how long is too long.
        first.append(self._attempt(candidates.portable()))
        self.contest.race(records_of(first), "orders")
        self._options(first)
        best = self.best()
        if best is None:
            raise self._hopeless()
        return best

    def best(self) -> Attempt | None:
        """The best so far; of equal ones the first, which has fewer changes."""
        tolerance = self.contest.tolerance
        admitted = [a for a in self.attempts if a.record and a.record.admitted(tolerance)]
        return min(admitted, key=self._cost, default=None)

    def fallback(self) -> Attempt | None:
        """What stays without a clear win: untuned, or the best that is always tried, if it will."""
        tolerance = self.contest.tolerance
        own = [a for a in self.attempts if a.candidate.always]
        admitted = [a for a in own if a.record and a.record.admitted(tolerance)]
        untuned = [a for a in admitted if a.candidate.name.startswith(candidates.UNTUNED)]
        return next(iter(untuned), None) or min(admitted, key=self._cost, default=None)

    def _cost(self, attempt: Attempt) -> float:
        assert attempt.record
        return self.contest.cost(attempt.record)

    def _options(self, first: Sequence[Attempt]) -> None:
        """Try every option of few values on the orders that had the most to say."""
        for start in self._starts(first):
            for name, words, move in list(self._option_moves(start.candidate)):
                if not self._time():
                    self._note(words, start, False, "not tried: the budget is spent")
                    continue
                self._consider(self._attempt(move), words, f"options {name}")

    def _useful(self, first: Sequence[Attempt]) -> tuple[list[str], list[str]]:
        """The plugins that get something of this model, and those that can't be had here."""
        names = self.ground.names
        alone = {a.candidate.plugins: a for a in first if len(a.candidate.plugins) == 1}
        unfit = [name for name in names if (name,) in alone and alone[name,].record is None]
        idle = [
            name
            for name in names
            if (known := alone.get((name,))) and known.record and not known.record.build.delegates
        ]
        return [name for name in names if name not in (*unfit, *idle)], unfit

    def _starts(self, first: Sequence[Attempt]) -> list[Attempt]:
        """The best order within the tolerance, and the best outside it, which may be mended."""
        ran = [a for a in first if a.record and a.candidate.plugins and a.record.latency]
        ran.sort(key=self._cost)
        tolerance = self.contest.tolerance
        inside = [a for a in ran if a.record and a.record.admitted(tolerance)]
        outside = [a for a in ran if a.record and not a.record.admitted(tolerance)]
        starts = [*inside[:1], *outside[:1]]
        whole = sorted(ran, key=lambda a: -len(a.candidate.plugins))
        return list(dict.fromkeys([*starts, *whole[:1]]))

    def _option_moves(self, start: Candidate) -> Iterator[tuple[str, str, Candidate]]:
        for name in start.plugins:
            plugin: Plugin = self.ground.plugins[name]
            fixed = self.ground.entry(name).options
            for words, move in options.moves_of(start, plugin, fixed):
                yield name, words, move

    def _consider(self, attempt: Attempt, words: str, session: str) -> bool:
        """Hold a new candidate against the best so far; returns whether it is better."""
        best = self.best()
        record = attempt.record
        if record is None:
            return self._note(words, attempt, False, f"not taken: {attempt.outcome}")
        twin = next(a for a in self.attempts if a.record is record)
        if twin is not attempt:
            why = f"not taken: it makes the same .pte as {twin.candidate.name}"
            return self._note(words, attempt, False, why)
        if best is None or best.record is None:
            self.contest.race([record], session)
            taken = record.admitted(self.contest.tolerance)
            why = "taken: the first within the tolerance" if taken else self._fault(record)
            return self._note(words, attempt, taken, why)
        ratio = self.contest.duel(record, best.record, session)
        if ratio is None:
            return self._note(words, attempt, False, self._fault(record))
        taken = is_clear(ratio)
        return self._note(words, attempt, taken, _reason(ratio, best.candidate.name), ratio)

    def _fault(self, record: Record) -> str:
        if record.failure:
            return f"not taken: {record.failure}"
        return f"not taken: its error {record.error:.2g} is above {self.contest.tolerance:g}"

    def _note(
        self,
        words: str,
        attempt: Attempt,
        taken: bool,
        why: str,
        ratio: Estimate | None = None,
        predicted: float | None = None,
    ) -> bool:
        self.moves.append(Move(words, attempt.candidate.name, taken, why, predicted, ratio))
        return taken

    def _attempt(self, candidate: Candidate) -> Attempt:
        if self.listener:
            self.listener("build", candidate.name)
        build = self.builder.build(candidate)
        known = self.contest.measurer.record(build) if isinstance(build, Build) else build
        if isinstance(build, Build):
            self._build_s = max(self._build_s, build.seconds)
        attempt = Attempt(candidate, known)
        self.attempts.append(attempt)
        return attempt

    def _within(self, some: Sequence[Candidate]) -> Iterator[Candidate]:
        """Those that the budget lasts for."""
        for candidate in some:
            if not self._time():
                return
            yield candidate

    def _time(self) -> bool:
        """Whether there is time for one more candidate."""
        enough = self.clock.allows(self._build_s + self.reserve_s)
        self.finished = self.finished and enough
        return enough

    def _hopeless(self) -> TuneError:
        errors = {a.candidate.name: a.record.error for a in self.attempts if a.record}
        if not errors or min(errors.values()) == float("inf"):
            faults = [f"{a.candidate.name}: {_why(a)}" for a in self.attempts]
            return TuneError(
                "candidates", f"none runs ({'; '.join(faults[:4])})", "see etdev check"
            )
        name = min(errors, key=lambda known: errors[known])
        what = f"no candidate is within {self.contest.tolerance:g}: the closest, {name}, is off by"
        cure = f"allow at least --tolerance {errors[name]:.1e}"
        return TuneError("tolerance", f"{what} {errors[name]:.2g}", cure)


def records_of(attempts: Sequence[Attempt]) -> list[Record]:
    """The records of the attempts that have one, each once."""
    return list({id(a.record): a.record for a in attempts if a.record}.values())


def _why(attempt: Attempt) -> str:
    known = attempt.record
    return str(known.failure or "wrong") if known else str(attempt.outcome)


def _reason(ratio: Estimate, best: str) -> str:
    if is_clear(ratio):
        return f"taken: {1 - ratio.value:.0%} less than {best}"
    if ratio.low > 1 - MARGIN:
        more = f"{ratio.value - 1:.0%} more than" if ratio.value > 1 + MARGIN else "no better than"
        return f"not taken: {more} {best}"
    return f"not taken: can't be told apart from {best}"
