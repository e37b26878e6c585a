"""Local search, which moves parts of the best candidate between plugins as long as that helps.

Profiles give the cost of parts under each owner, which is enough to order the changes. The effect
of a change is measured end to end, since costs of parts don't add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field

from etdev.schema.limits import Limits
from etdev.schema.pins import PORTABLE
from etdev_tune.assignment import least_cost_owners
from etdev_tune.attempts import Attempt
from etdev_tune.candidate import Candidate
from etdev_tune.profiler import Profiler
from etdev_tune.rates import Rates, Sample, predicted
from etdev_tune.record import LATENCY
from etdev_tune.search import SPENT, Search
from etdev_tune.structures import Shift, pins_of, shifts_of
from etdev_tune.units import Key, Unit, moved, owned, units_of

# Changes with a higher predicted cost are not measured; predictions are not that wrong.
_HOPELESS = 1.3
# Number of the smallest sizes of partitions that are tried as a limit.
_LIMITS = 3


@define(eq=False)
class LocalSearch:
    """Search that moves units between plugins.

    Args:
        search: The search so far, which has candidates, moves and the budget.
        profiler: Measures the cost of parts.
    """

    search: Search
    profiler: Profiler
    _tried: set[frozenset[tuple[Key, str]]] = field(factory=set)

    def run(self) -> None:
        """Try simplification, limits, the owners of least predicted cost, then structures."""
        self._simplify()
        self._limits()
        best = self.search.best()
        assert best
        start = self._start(best)
        if start is None or start.record is None:
            return
        build = start.record.build
        units = units_of(build.plan, build.works)
        rates = Rates.fitted(self._samples(start, best))
        owners = self._owners(best, units)
        if len(self.search.useful) > 1:
            owners = self._assign(start.candidate, units, owners, rates)
        self._shifts(start.candidate, units, owners, rates)

    def _start(self, best: Attempt) -> Attempt | None:
        """Return the best candidate with all other useful plugins behind its own."""
        rest = [name for name in self.search.useful if name not in best.candidate.plugins]
        if not rest:
            return best
        if not self.search.has_time():
            return None
        order = (*best.candidate.plugins, *rest)
        name = f"{best.candidate.name}, then {', '.join(rest)}"
        attempt = self.search.attempt(
            evolve(best.candidate, name=name, plugins=order, always=False)
        )
        self.search.consider(attempt, f"{', '.join(rest)} behind it", "moves")
        return attempt

    def _samples(self, *attempts: Attempt) -> Iterator[Sample]:
        alone = [a for a in self.search.attempts if a.candidate.always]
        builds = {a.record.build.digest: a.record for a in (*attempts, *alone) if a.record}
        for record in builds.values():
            # Don't wait again for a process that failed or was given up.
            if record.failure is None and self.search.has_time():
                yield from self.profiler.samples(record.build)

    def _owners(self, best: Attempt, units: Sequence[Unit]) -> dict[Key, str]:
        """Return the owners in the best candidate, as far as its plan has the same units."""
        assert best.record
        build = best.record.build
        known = owned(units_of(build.plan, build.works))
        allowed = (*best.candidate.plugins, PORTABLE)
        return {
            unit.key: known.get(unit.key, unit.owner if unit.owner in allowed else PORTABLE)
            for unit in units
        }

    def _assign(
        self, start: Candidate, units: Sequence[Unit], owners: dict[Key, str], rates: Rates
    ) -> dict[Key, str]:
        """Try the owners of least predicted cost; return the better owners."""
        assigned: dict[Key, str] = {}
        for method in dict.fromkeys(unit.key[0] for unit in units):
            own = [unit for unit in units if unit.key[0] == method]
            assigned |= least_cost_owners(own, start.plugins, rates)
        if assigned == owners:
            return owners
        shift = Shift("least predicted cost", assigned)
        return assigned if self._try(start, units, owners, shift, rates) else owners

    def _shifts(
        self, start: Candidate, units: Sequence[Unit], owners: dict[Key, str], rates: Rates
    ) -> None:
        """Move one structure after the other, the most promising first, until none helps."""
        while shift := self._next(start, units, owners, rates):
            if self._try(start, units, owners, shift, rates):
                owners = {**owners, **shift.owners}

    def _next(
        self, start: Candidate, units: Sequence[Unit], owners: Mapping[Key, str], rates: Rates
    ) -> Shift | None:
        """Return the most promising change that was not tried with these owners."""
        shifts = [
            (self._prediction(units, owners, shift, rates) or 1.0, index, shift)
            for index, shift in enumerate(shifts_of(moved(units, owners), start.plugins))
            if self._mark(owners, shift) not in self._tried
        ]
        return min(shifts, default=(0, 0, None), key=lambda known: known[:2])[2]

    def _try(
        self,
        start: Candidate,
        units: Sequence[Unit],
        owners: Mapping[Key, str],
        shift: Shift,
        rates: Rates,
    ) -> bool:
        """Build and measure a change, unless it is hopeless; return True if it is better."""
        self._tried.add(self._mark(owners, shift))
        search = self.search
        best = search.best()
        assert best
        ratio = self._prediction(units, owners, shift, rates)
        if ratio and ratio > _HOPELESS:
            why = f"not tried: {ratio:.1f} times the cost is predicted"
            return search.note(shift.name, best.candidate.name, False, why, ratio)
        if not search.has_time():
            return search.note(shift.name, best.candidate.name, False, SPENT, ratio)
        pins = pins_of(units, {**owners, **shift.owners})
        candidate = evolve(
            start, name=f"{best.candidate.name}; {shift.name}", pins=pins, always=False
        )
        return search.consider(search.attempt(candidate), shift.name, "moves", ratio)

    def _mark(self, owners: Mapping[Key, str], shift: Shift) -> frozenset[tuple[Key, str]]:
        return frozenset({**owners, **shift.owners}.items())

    def _prediction(
        self, units: Sequence[Unit], owners: Mapping[Key, str], shift: Shift, rates: Rates
    ) -> float | None:
        """Return the cost after a change as a multiple of that before it."""
        if self.search.contest.objective != LATENCY:
            return None
        before = predicted(units, owners, rates)
        after = predicted(units, {**owners, **shift.owners}, rates)
        return after / before if before and after is not None else None

    def _simplify(self) -> None:
        """Try simplification if the user has it off, or without it if it changed something."""
        search, best = self.search, self.search.best()
        assert best
        assert best.record
        changed = not search.setup.registry.simplify
        candidate = best.candidate.simplified(changed)
        words = f"simplify={str(changed).lower()}"
        if not changed and not any(m.simplified for m in best.record.build.plan.methods):
            return
        if not search.has_time():
            search.note(words, best.candidate.name, False, SPENT)
            return
        search.consider(search.attempt(candidate), words, "moves")

    def _limits(self) -> None:
        """Try without the smallest partitions of each plugin of the best candidate."""
        best = self.search.best()
        assert best
        assert best.record
        plan = best.record.build.plan
        for name in best.candidate.plugins:
            entries = {e.node: e.op for method in plan.methods for e in method.ledger}
            sizes = sorted(
                {
                    sum(entries.get(node, "getitem") != "getitem" for node in partition.nodes)
                    for partition in plan.partitions
                    if partition.plugin == name
                }
            )
            for size in sizes[:-1][:_LIMITS]:
                words = f"min_nodes={size + 1}"
                if not self.search.has_time():
                    self.search.note(f"{name} {words}", best.candidate.name, False, SPENT)
                    continue
                candidate = best.candidate.with_limits(name, Limits(min_nodes=size + 1), words)
                self.search.consider(self.search.attempt(candidate), f"{name} {words}", "limits")
