"""Measurement of candidates in rounds, each in a process of its own, in alternating order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from attrs import asdict, define, evolve, field
from blake3 import blake3

from etdev.schema.stages import Listener
from etdev_tune.accuracy import error_of
from etdev_tune.builder import Build
from etdev_tune.cases import Case
from etdev_tune.exchange import HANG, SLOW, Failure, Request, Runner
from etdev_tune.measurement import Measurement, Policy
from etdev_tune.record import Record
from etdev_tune.sentinel import Sentinel
from etdev_tune.store import Store

# Repetitions of a disturbed measurement.
_RETRIES = 2
# A process that takes both that many times as long as the quickest one so far and that many seconds
# is ended: a portable convolution may take 20 s for a call.
_FACTOR, _PATIENCE_S = 50, 10.0


@define(eq=False)
class Measurer:
    """Measurement of builds on a target, with a store of earlier measurements.

    Args:
        runner: The target.
        fingerprint: Facts that its times depend on.
        cases: The calls.
        policy: Settings of each process.
        store: Earlier measurements.
        sentinel: Detects a busy target.
        listener: Called with a stage and a detail.
        taken: Number of measurements that were taken.
        reused: Number of measurements that were found in the store.
        quickest_s: Time of the quickest process.
        usual_s: Moving average of the time of a process.
    """

    runner: Runner
    fingerprint: Mapping[str, str]
    cases: Sequence[Case]
    policy: Policy
    store: Store
    sentinel: Sentinel
    listener: Listener
    taken: int = 0
    reused: int = 0
    quickest_s: float | None = None
    usual_s: float | None = None
    _records: dict[str, Record] = field(factory=dict)

    def record(self, build: Build) -> Record:
        """Return the record of a build, which builds with the same bytes share."""
        return self._records.setdefault(build.digest, Record(build, self.cases))

    def round(
        self,
        records: Sequence[Record],
        session: str,
        number: int,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        """Measure each record once, in a process of its own; every other round in reversed order.

        Args:
            records: The records, which get the measurements and failures.
            session: Purpose of the rounds.
            number: Number of the round in the session, from 0.
            enough: Called before each process; the round ends if it returns True.
        """
        name = self.session_of(records, session)
        turn = list({record.build.digest: record for record in records}.values())
        for record in reversed(turn) if number % 2 else turn:
            if enough and enough():
                return
            if record.failure is None and (name, number) not in record.rounds:
                self._measure(record, name, number)

    def session_of(self, records: Sequence[Record], session: str) -> str:
        """Return the name of a session with a digest of the records that are measured in it."""
        digests = sorted({record.build.digest for record in records})
        return f"{session} {blake3(' '.join(digests).encode()).hexdigest()[:16]}"

    def _measure(self, record: Record, session: str, number: int) -> None:
        methods: dict[str, Measurement] = {}
        for case in self.cases:
            known = self._of_case(record.build, case, session, number)
            if isinstance(known, Failure):
                record.failure = known
                return
            methods[case.method] = known
        record.rounds[session, number] = methods

    def _of_case(
        self, build: Build, case: Case, session: str, number: int
    ) -> Measurement | Failure:
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
            if isinstance(known, Measurement):
                self.sentinel.learn(known.sentinel_ns)
            return known
        self.listener("measure", f"{build.candidate.name} (round {number + 1})")
        value = self._undisturbed(build, case, outputs=number == 0)
        self.taken += 1
        self.store.save(key, value)
        return value

    def _undisturbed(self, build: Build, case: Case, outputs: bool) -> Measurement | Failure:
        """Measure a build, and again if the target was busy, unless it mostly is."""
        value = self._once(build, case, outputs)
        for _ in range(_RETRIES):
            if isinstance(value, Failure) or not value.disturbance or self.sentinel.is_busy:
                break
            self.listener("measure", f"{build.candidate.name} again, {value.disturbance}")
            again = self._once(build, case, outputs)
            if isinstance(again, Failure) or not again.disturbance:
                return again
        return value

    def _once(self, build: Build, case: Case, outputs: bool) -> Measurement | Failure:
        policy = self.policy
        if self.quickest_s is not None:
            limit = max(_PATIENCE_S, _FACTOR * self.quickest_s)
            policy = evolve(policy, timeout_s=min(policy.timeout_s, limit))
        start = time.monotonic()
        result = self.runner.run(_request(build, case, policy, outputs))
        if isinstance(result, Failure):
            if result.kind == HANG and policy.timeout_s < self.policy.timeout_s:
                what = f"no answer within {policy.timeout_s:.0f} s"
                return Failure(SLOW, f"{what}, {_FACTOR} times what the quickest one takes")
            return result
        seconds = time.monotonic() - start
        self.quickest_s = min(seconds, self.quickest_s or seconds)
        self.usual_s = seconds if self.usual_s is None else 0.8 * self.usual_s + 0.2 * seconds
        return Measurement(
            times_ns=result.times_ns,
            error=error_of(case, result.outputs) if outputs else None,
            load_ns=result.load_ns,
            memory_bytes=result.memory_bytes,
            sentinel_ns=result.sentinel_ns,
            others_cpu=result.others_cpu,
            threads=result.threads,
            disturbance=self.sentinel.disturbance(result.sentinel_ns, result.others_cpu),
        )


def _request(build: Build, case: Case, policy: Policy, outputs: bool) -> Request:
    facts = build.methods[case.method]
    return Request(
        program=build.path,
        inputs=tuple(map(tuple, case.inputs(len(facts.inputs)))),
        data=build.data,
        method=case.method,
        outputs=outputs,
        timed=case.timed,
        **asdict(policy),
    )
