"""Local search, which changes the best candidate as long as that helps.

The effect of a change is measured end to end, since costs of parts don't add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, evolve, field

from etdev.schema.limits import Limits
from etdev.schema.pins import PORTABLE
from etdev_tune.attempts import Attempt
from etdev_tune.builder import Build
from etdev_tune.search import Search
from etdev_tune.units import Key, Shift, Unit, pins_of, shifts_of, units_of

# Number of the smallest sizes of partitions that are tried as a limit.
_LIMITS = 3


@define(eq=False)
class LocalSearch:
    """Search that changes simplification and limits, and moves units between plugins.

    Args:
        search: The search so far, which has candidates, moves and the budget.
    """

    search: Search
    _tried: set[frozenset[tuple[Key, str]]] = field(factory=set)

    def run(self) -> None:
        """Try simplification, limits, then the owners of structures until no change helps."""
        self._simplify()
        self._limits()
        start = self._start()
        if start is None or start.record is None:
            return
        build = start.record.build
        units = units_of(build.plan, build.shapes)
        owners = self._owners(units)
        while self.search.finished and (shift := self._next(start, units, owners)):
            moved = {**owners, **shift.owners}
            self._tried.add(frozenset(moved.items()))
            best, _ = self._best()
            name = f"{best.candidate.name}; {shift.name}"
            pins = pins_of(units, moved)
            candidate = evolve(start.candidate, name=name, pins=pins, always=False)
            if self.search.change(candidate, shift.name, "moves"):
                owners = moved

    def _best(self) -> tuple[Attempt, Build]:
        best = self.search.best()
        assert best
        assert best.record
        return best, best.record.build

    def _start(self) -> Attempt | None:
        """Return the best candidate with all other useful plugins behind its own."""
        best, _ = self._best()
        rest = [name for name in self.search.useful if name not in best.candidate.plugins]
        if not rest:
            return best
        order = (*best.candidate.plugins, *rest)
        name = f"{best.candidate.name}, then {', '.join(rest)}"
        candidate = evolve(best.candidate, name=name, plugins=order, always=False)
        self.search.change(candidate, f"{', '.join(rest)} behind it", "moves")
        return next((a for a in self.search.attempts if a.candidate is candidate), None)

    def _owners(self, units: Sequence[Unit]) -> dict[Key, str]:
        """Return the owners in the best candidate, as far as its plan has the same units."""
        best, build = self._best()
        known = {unit.key: unit.owner for unit in units_of(build.plan, build.shapes)}
        allowed = (*best.candidate.plugins, PORTABLE)
        return {
            unit.key: known.get(unit.key, unit.owner if unit.owner in allowed else PORTABLE)
            for unit in units
        }

    def _next(
        self, start: Attempt, units: Sequence[Unit], owners: Mapping[Key, str]
    ) -> Shift | None:
        """Return the first change that was not tried with these owners."""
        shifts = shifts_of(units, owners, start.candidate.plugins)
        for shift in shifts:
            if frozenset({**owners, **shift.owners}.items()) not in self._tried:
                return shift
        return None

    def _simplify(self) -> None:
        """Try simplification if the user has it off, or without it if it changed something."""
        best, build = self._best()
        changed = not self.search.setup.registry.simplify
        if changed or any(method.simplified for method in build.plan.methods):
            words = f"simplify={str(changed).lower()}"
            self.search.change(best.candidate.simplified(changed), words, "moves")

    def _limits(self) -> None:
        """Try without the smallest partitions of each plugin of the best candidate."""
        best, build = self._best()
        entries = {e.node: e.op for method in build.plan.methods for e in method.ledger}
        for name in best.candidate.plugins:
            sizes = {
                sum(entries.get(node, "getitem") != "getitem" for node in partition.nodes)
                for partition in build.plan.partitions
                if partition.plugin == name
            }
            for size in sorted(sizes)[:-1][:_LIMITS]:
                words = f"min_nodes={size + 1}"
                now, _ = self._best()
                candidate = now.candidate.with_limits(name, Limits(min_nodes=size + 1), words)
                self.search.change(candidate, f"{name} {words}", "limits")
