"""Measurement of candidates in rounds, each in a process of its own, in alternating order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, define, evolve, field
from blake3 import blake3

from etdev.schema.stages import Listener
from etdev_tune.accuracy import error_of
from etdev_tune.builder import Build
from etdev_tune.cases import Case
from etdev_tune.exchange import HANG, SLOW, Failure, Request, Result, Runner
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
    listener: Listener | None = None
    taken: int = 0
    reused: int = 0
    quickest_s: float | None = None
    usual_s: float | None = None
    _records: dict[str, Record] = field(factory=dict)

    def record(self, build: Build) -> Record:
        """Return the record of a build, which builds with the same bytes share."""
        if build.digest not in self._records:
            self._records[build.digest] = Record(build, self.cases)
        return self._records[build.digest]

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
        key = self.key(build, case, session, number)
        if known := self.store.load(key):
            self.reused += 1
            if isinstance(known, Measurement):
                self.sentinel.learn(known.sentinel_ns)
            return known
        if self.listener:
            self.listener("measure", f"{build.candidate.name} (round {number + 1})")
        value = self._undisturbed(build, case, outputs=number == 0)
        self.taken += 1
        self.store.save(key, value)
        return value

    def _undisturbed(self, build: Build, case: Case, outputs: bool) -> Measurement | Failure:
        """Measure a build, and again if the target was busy, unless it mostly is."""
        value = self._once(build, case, outputs)
        for _ in range(_RETRIES):
            hopeless = self.sentinel.disturbed > 4 and (
                self.sentinel.disturbed > self.sentinel.judged / 2
            )
            if isinstance(value, Failure) or not value.disturbance or hopeless:
                break
            if self.listener:
                self.listener("measure", f"{build.candidate.name} again, {value.disturbance}")
            again = self._once(build, case, outputs)
            if isinstance(again, Failure) or not again.disturbance:
                return again
        return value

    def _once(self, build: Build, case: Case, outputs: bool) -> Measurement | Failure:
        policy = self._patient()
        start = time.monotonic()
        result = self.runner.run(request_of(build, case, policy, outputs))
        if isinstance(result, Failure):
            if result.kind == HANG and policy.timeout_s < self.policy.timeout_s:
                what = f"no answer within {policy.timeout_s:.0f} s"
                return Failure(SLOW, f"{what}, {_FACTOR} times what the quickest one takes")
            return result
        seconds = time.monotonic() - start
        self.quickest_s = min(seconds, self.quickest_s or seconds)
        self.usual_s = seconds if self.usual_s is None else 0.8 * self.usual_s + 0.2 * seconds
        measured = measurement_of(result, case, outputs)
        disturbance = self.sentinel.disturbance(measured.sentinel_ns, measured.others_cpu)
        return evolve(measured, disturbance=disturbance)

    def _patient(self) -> Policy:
        """Return the policy with a time limit from the quickest process so far."""
        if self.quickest_s is None:
            return self.policy
        limit = max(_PATIENCE_S, _FACTOR * self.quickest_s)
        return evolve(self.policy, timeout_s=min(self.policy.timeout_s, limit))

    def key(self, build: Build, case: Case, session: str, number: int) -> dict[str, Any]:
        """Return all that the times of one process depend on."""
        return {
            "program": build.digest,
            "case": case.digest,
            "policy": asdict(self.policy),
            "target": dict(self.fingerprint),
            "session": session,
            "round": number,
        }


def request_of(
    build: Build, case: Case, policy: Policy, outputs: bool = False, profile: bool = False
) -> Request:
    """Make the request to measure one method of a build."""
    facts = build.methods[case.method]
    return Request(
        program=build.path,
        inputs=tuple(map(tuple, case.inputs(len(facts.inputs)))),
        data=build.data,
        method=case.method,
        outputs=outputs,
        warmup=policy.warmup,
        warmup_s=policy.warmup_s,
        repetitions=policy.repetitions,
        seconds=policy.seconds,
        threads=policy.threads,
        timed=case.timed,
        profile=profile,
        timeout_s=policy.timeout_s,
    )


def measurement_of(result: Result, case: Case, outputs: bool) -> Measurement:
    """Make a measurement of a result, its outputs compared with eager PyTorch's."""
    return Measurement(
        times_ns=result.times_ns,
        error=error_of(case, result.outputs) if outputs else None,
        load_ns=result.load_ns,
        memory_bytes=result.memory_bytes,
        sentinel_ns=result.sentinel_ns,
        others_cpu=result.others_cpu,
        threads=result.threads,
    )
