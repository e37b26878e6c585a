"""Measurement of candidates in rounds, each in a process of its own, in alternating order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import asdict, define, evolve, field
from blake3 import blake3

from etdev_tune.builder import Build
from etdev_tune.cases import Case, error_of
from etdev_tune.exchange import Failure, Policy, Request, Result, Runner
from etdev_tune.record import Record
from etdev_tune.store import Store

# A process that takes both that many times as long as the quickest one so far and that many seconds
# is ended: a portable convolution may take 20 s for a call.
_FACTOR, _PATIENCE_S = 50, 10.0
# Called with a stage and a detail as the work goes on.
Listener = Callable[[str, str], object]


@define(eq=False)
class Measurer:
    """Measurement of builds on a target, with a store of earlier measurements.

    Args:
        fingerprint: Facts about the target that its times depend on.
        taken: Number of measurements that were taken.
        reused: Number of measurements that were found in the store.
        usual_s: Moving average of the time of a process.
    """

    runner: Runner
    fingerprint: Mapping[str, str]
    cases: Sequence[Case]
    policy: Policy
    store: Store
    listener: Listener
    taken: int = 0
    reused: int = 0
    usual_s: float | None = None
    _quickest_s: float | None = None
    _records: dict[str, Record] = field(factory=dict)

    def record(self, build: Build) -> Record:
        """Return the record of a build, which builds with the same bytes share."""
        return self._records.setdefault(build.digest, Record(build, self.cases))

    def round(
        self,
        records: Sequence[Record],
        session: str,
        number: int,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Measure each record once, in a process of its own; every other round in reversed order.

        The session names what these rounds are for. The round ends early once `enough` is true.
        """
        name = self.session_of(records, session)
        turn = list({record.build.digest: record for record in records}.values())
        for record in reversed(turn) if number % 2 else turn:
            if enough():
                return
            if record.failure is None and (name, number) not in record.rounds:
                self._measure(record, name, number)

    def session_of(self, records: Sequence[Record], session: str) -> str:
        """Return the name of a session with a digest of the records that are measured in it."""
        digests = sorted({record.build.digest for record in records})
        return f"{session} {blake3(' '.join(digests).encode()).hexdigest()[:16]}"

    def _measure(self, record: Record, session: str, number: int) -> None:
        methods: dict[str, Result] = {}
        for case in self.cases:
            known = self._of_case(record.build, case, session, number)
            if isinstance(known, Failure):
                record.failure = known
                return
            methods[case.method] = known
        record.rounds[session, number] = methods

    def _of_case(self, build: Build, case: Case, session: str, number: int) -> Result | Failure:
        # All that the times of one process depend on.
        key = {
            "program": build.digest,
            "case": case.digest,
            "policy": asdict(self.policy),
            "target": dict(self.fingerprint),
            "session": session,
            "round": number,
        }
        if known := self.store.load(key):
            self.reused += 1
            return known
        self.listener("measure", f"{build.candidate.name} (round {number + 1})")
        value = self._once(build, case, outputs=number == 0)
        self.taken += 1
        self.store.save(key, value)
        return value

    def _once(self, build: Build, case: Case, outputs: bool) -> Result | Failure:
        policy = self.policy
        if self._quickest_s is not None:
            limit = max(_PATIENCE_S, _FACTOR * self._quickest_s)
            policy = evolve(policy, timeout_s=min(policy.timeout_s, limit))
        request = Request(
            program=build.path,
            inputs=tuple(tuple(call.inputs) for call in case.calls),
            data=build.data,
            method=case.method,
            outputs=outputs,
            timed=case.timed,
            **asdict(policy),
        )
        start = time.monotonic()
        result = self.runner.run(request)
        if isinstance(result, Failure):
            return result
        seconds = time.monotonic() - start
        self._quickest_s = min(seconds, self._quickest_s or seconds)
        self.usual_s = seconds if self.usual_s is None else 0.8 * self.usual_s + 0.2 * seconds
        if not outputs:
            return evolve(result, outputs=())
        error = error_of(case, result.outputs)
        metric = None
        if case.metric and math.isfinite(error):
            metric = case.metric(result.outputs, case.calls)
        return evolve(result, outputs=(), error=error, metric=metric)
