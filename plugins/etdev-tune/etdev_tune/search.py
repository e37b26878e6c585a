"""Search from the baselines to the best candidate that the budget allows."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, frozen

from etdev.errors import TuneError
from etdev.schema.limits import Limits
from etdev.schema.plan import Plan
from etdev.schema.stages import Listener
from etdev_tune import candidate as candidates
from etdev_tune.builder import Build, Builder
from etdev_tune.candidate import Candidate
from etdev_tune.contest import LEAST_OF_DUEL, MARGIN, RESERVE, Clock, Contest, is_clear
from etdev_tune.exchange import BUDGET_SPENT, UNTRIED, Failure
from etdev_tune.moves import moves_of, option_moves
from etdev_tune.record import Record
from etdev_tune.report import Change, Estimate

# The fewest rounds of the race, for an estimate.
_ROUNDS = 3
# Number of the smallest sizes of partitions that are tried as a limit.
_LIMITS = 3


@frozen(eq=False)
class Attempt:
    """A candidate with the record of its build, or with the reason why it was not built."""

    candidate: Candidate
    outcome: Record | Failure

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
        if isinstance(self.outcome, Failure):
            return self.outcome.kind == UNTRIED
        return not self.outcome.rounds and not self.outcome.failure


@define(eq=False)
class Search:
    """Search for the best candidate.

    Args:
        attempts: All candidates so far.
        moves: All changes that were considered.
        finished: Nothing was left out for lack of time.
        useful: The plugins that claim some of the model.
    """

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
        """Try plugins alone, their orders, their options, and then changes of the best.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        names = tuple(self.builder.setup.plugins)
        untuned, *alone = candidates.always(names)
        self._attempt(untuned)
        self._estimate(len(alone) + 1)
        for candidate in alone:
            self._always(candidate)
        unfit = self._sort_plugins(names)
        if unfit and self.useful and self.has_time():
            self._attempt(candidates.untuned_without(self.useful, unfit))
        for candidate in candidates.orders_of(self.useful):
            if candidate.plugins != names and self.has_time():
                self._attempt(candidate)
        # Last: its kernels may be so slow that the time limit has to come from other candidates.
        self._always(candidates.portable())
        winner = self.contest.race([a.record for a in self.attempts if a.record], "orders")
        self._best = next((a for a in self.attempts if winner and a.record is winner), None)
        for start in self._starts():
            for name, words, move in list(self._option_moves(start.candidate)):
                self._change(move, words, f"options {name}")
        self._simplify()
        self._limit()
        self._move()

    def best(self) -> Attempt:
        """Return the winner of the race of orders, or the last candidate that beat the best one.

        Raises:
            TuneError: No candidate is within the tolerance.
        """
        if self._best is None:
            raise _hopeless(self.attempts, self.contest.tolerance)
        return self._best

    def fallback(self) -> Attempt | None:
        """Return the untuned plan, or the best baseline if that is not within the tolerance."""
        own = [a for a in self.attempts if a.candidate.always and self._admits(a)]
        untuned = [a for a in own if a.candidate.name.startswith(candidates.UNTUNED)]
        return next(iter(untuned), None) or min(own, key=self._cost, default=None)

    def has_time(self) -> bool:
        """Return True if there is time for another candidate, and for the confirmation."""
        process_s = self.contest.measurer.usual_s or 0.0
        # For lowering it now, and the chosen one again in the end.
        enough = self.clock.allows(2 * self._build_s + (LEAST_OF_DUEL + RESERVE) * process_s)
        self.finished = self.finished and enough
        return enough

    def _attempt(self, candidate: Candidate) -> Attempt:
        """Build a candidate, and keep it in the list of attempts."""
        self.listener("build", candidate.name)
        build = self.builder.build(candidate)
        if isinstance(build, Build):
            # An average, since the first candidates load libraries.
            self._build_s = (self._build_s or build.seconds) / 2 + build.seconds / 2
            return self._added(candidate, self.contest.measurer.record(build))
        return self._added(candidate, build)

    def _always(self, candidate: Candidate) -> None:
        """Build a baseline, unless the budget is spent and there is another one."""
        if self.clock.allows(self._build_s) or not any(known.record for known in self.attempts):
            self._attempt(candidate)
        else:
            self.finished = False
            self._added(candidate, Failure(UNTRIED, BUDGET_SPENT))

    def _added(self, candidate: Candidate, outcome: Record | Failure) -> Attempt:
        self.attempts.append(Attempt(candidate, outcome))
        return self.attempts[-1]

    def _change(self, candidate: Candidate, words: str, session: str) -> bool:
        """Build a candidate, and compare it with the best so far, if the budget lasts.

        Return True if the candidate is the best one now.
        """
        of = self._best.candidate.name if self._best else ""
        taken, why, ratio = self._compared(candidate, of, session)
        self.moves.append(Change(words, of, taken, why, ratio))
        return taken

    def _compared(
        self, candidate: Candidate, of: str, session: str
    ) -> tuple[bool, str, Estimate | None]:
        """Return whether a candidate is taken, why or why not, and its measured cost."""
        if not self.has_time():
            return False, "not tried: the budget is spent", None
        attempt, best = self._attempt(candidate), self._best
        record = attempt.record
        if record is None:
            return False, f"not taken: {attempt.outcome}", None
        twin = next(known for known in self.attempts if known.record is record)
        if twin is not attempt:
            return False, f"not taken: it makes the same .pte as {twin.candidate.name}", None
        if best is None or best.record is None:
            self.contest.race([record], session)
            if not self._admits(attempt):
                return False, self._fault(record), None
            self._best = attempt
            return True, "taken: the first within the tolerance", None
        ratio = self.contest.duel(record, best.record, session)
        if ratio is None:
            return False, self._fault(record), None
        if is_clear(ratio):
            self._best = attempt
        return is_clear(ratio), _reason(ratio, of), ratio

    def _fault(self, record: Record) -> str:
        if record.failure:
            return f"not taken: {record.failure}"
        return f"not taken: its error {record.error:.2g} is above {self.contest.tolerance:g}"

    def _admits(self, attempt: Attempt) -> bool:
        return attempt.record is not None and attempt.record.admitted(self.contest.tolerance)

    def _cost(self, attempt: Attempt) -> float:
        assert attempt.record
        return self.contest.cost(attempt.record)

    def _sort_plugins(self, names: tuple[str, ...]) -> list[str]:
        """Note the plugins that claim some of the model; return those that can't compile here."""
        unfit: list[str] = []
        idle: list[str] = []
        for attempt in self.attempts:
            if len(attempt.candidate.plugins) == 1 and not attempt.is_untried:
                if attempt.record is None:
                    unfit += attempt.candidate.plugins
                elif not attempt.record.build.delegates:
                    idle += attempt.candidate.plugins
        self.useful = tuple(name for name in names if name not in (*unfit, *idle))
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
        setup = self.builder.setup
        for name in filter(owners.__contains__, start.plugins):
            fixed = setup.registry.entry(name).options
            for words, move in option_moves(start, setup.plugins[name], fixed):
                yield name, words, move

    def _simplify(self) -> None:
        """Try simplification if the user has it off, or without it if it changed something."""
        best = self.best()
        changed = not self.builder.setup.registry.simplify
        if changed or any(method.simplified for method in best.plan.methods):
            words = f"simplify={str(changed).lower()}"
            self._change(best.candidate.simplified(changed), words, "moves")

    def _limit(self) -> None:
        """Try without the smallest partitions of each plugin of the best candidate."""
        plan = self.best().plan
        entries = {e.node: e.op for method in plan.methods for e in method.ledger}
        for name in self.best().candidate.plugins:
            sizes = {
                sum(entries.get(node, "getitem") != "getitem" for node in partition.nodes)
                for partition in plan.partitions
                if partition.plugin == name
            }
            for size in sorted(sizes)[:-1][:_LIMITS]:
                words, limits = f"min_nodes={size + 1}", Limits(min_nodes=size + 1)
                candidate = self.best().candidate.with_limits(name, limits, words)
                self._change(candidate, f"{name} {words}", "limits")

    def _move(self) -> None:
        """Try parts of the model under other owners.

        The effect of a move is measured end to end, since costs of parts don't add up.
        """
        asked = max((a for a in self.attempts if a.record), key=lambda a: len(a.candidate.plugins))
        for move in list(moves_of(asked.plan, self.best().plan, self.useful)):
            candidate = self.best().candidate.with_pins(move.pins, move.owner, move.name)
            if not self._change(candidate, move.name, "moves") and not self.finished:
                return

    def _estimate(self, others: int) -> None:
        """Tell the listener how long the baselines take, now that one is lowered."""
        measurer = self.contest.measurer
        timed = sum(len(case.timed) for case in measurer.cases)
        seconds = others * self._build_s + (others + 1) * _ROUNDS * timed * measurer.policy.seconds
        words = f"{seconds:.0f} s to try the {others + 1} candidates that are always tried"
        if seconds > self.clock.left:
            words += f"; {max(self.clock.left, 0):.0f} s of the budget are left"
        self.listener("estimate", f"about {words}")


def _reason(ratio: Estimate, best: str) -> str:
    """Say why a candidate of this cost replaces the best one, or doesn't."""
    if is_clear(ratio):
        return f"taken: {1 - ratio.value:.0%} less than {best}"
    if ratio.low > 1 - MARGIN:
        more = f"{ratio.value - 1:.0%} more than" if ratio.value > 1 + MARGIN else "no better than"
        return f"not taken: {more} {best}"
    return f"not taken: can't be told apart from {best}"


def _hopeless(attempts: list[Attempt], tolerance: float) -> TuneError:
    """Return the error for a search without a candidate that runs within the tolerance."""
    errors = {a.candidate.name: a.record.error for a in attempts if a.record}
    name = min(errors, key=lambda known: errors[known], default="")
    if name and errors[name] < float("inf"):
        what = f"no candidate is within {tolerance:g}: the closest, {name}, is off by"
        cure = f"allow at least --tolerance {errors[name]:.1e}"
        return TuneError("tolerance", f"{what} {errors[name]:.2g}", cure)
    faults = [(a.record.failure or "wrong") if a.record else a.outcome for a in attempts]
    named = [f"{a.candidate.name}: {fault}" for a, fault in zip(attempts, faults, strict=True)]
    cure = "see etdev check"
    if any(a.is_untried for a in attempts):
        cure = "give more with --budget; what was measured is kept"
    return TuneError("candidates", f"none runs ({'; '.join(named[:4])})", cure)
