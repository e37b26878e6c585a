"""Profiles of builds, as samples for the rates of plugins and portable kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, frozen

from etdev.errors import RunError
from etdev.runtime.profile import profile_of
from etdev.schema.pins import PORTABLE
from etdev.schema.plan import MethodPlan
from etdev_tune.builder import Build
from etdev_tune.cases import Case
from etdev_tune.exchange import Failure
from etdev_tune.measurement import Measurement
from etdev_tune.measurer import Measurer, request_of
from etdev_tune.rates import Sample, base
from etdev_tune.units import Work

SESSION = "profile"


@frozen(eq=False)
class Profiler:
    """Profiling of builds on the measurer's target, with its store of earlier profiles.

    Args:
        measurer: Target, cases, policy and store.
    """

    measurer: Measurer

    def samples(self, build: Build) -> list[Sample]:
        """Return samples of all methods of a build; none if the target writes no ETDump."""
        return [sample for case in self.measurer.cases for sample in self._of_case(build, case)]

    def _of_case(self, build: Build, case: Case) -> Iterator[Sample]:
        key = self.measurer.key(build, case, SESSION, 0)
        known = self.measurer.store.load(key)
        if known is None:
            known = self._profile(build, case)
            self.measurer.store.save(key, known)
        if isinstance(known, Measurement):
            yield from _samples(build, build.plan[case.method], known.costs)

    def _profile(self, build: Build, case: Case) -> Measurement | Failure:
        request = evolve(request_of(build, case, self.measurer.policy, profile=True), repetitions=0)
        result = self.measurer.runner.run(request)
        if isinstance(result, Failure):
            return result
        if not result.etdump:
            return Measurement(())
        try:
            found = profile_of(result.etdump, build.path, case.method, build.plan)
        except RunError:
            return Measurement(())
        return Measurement((), costs={cost.name: (cost.ms, cost.calls) for cost in found.costs})


def _samples(
    build: Build, plan: MethodPlan, costs: Mapping[str, tuple[float, int]]
) -> Iterator[Sample]:
    works = build.works[plan.method]
    for partition in plan.partitions:
        if partition.name in costs:
            ms, calls = costs[partition.name]
            own = [works[node][0] for node in partition.nodes if node in works]
            yield Sample(partition.plugin, "", calls, sum(own, Work()), ms)
    entries = [entry for entry in plan.ledger if entry.falls_back and entry.node in works]
    for name, (ms, calls) in costs.items():
        own = [works[e.node][0] for e in entries if "::" in name and base(e.op) == base(name)]
        if own:
            yield Sample(PORTABLE, base(name), calls, sum(own, Work()), ms)
