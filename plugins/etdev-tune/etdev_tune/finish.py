"""Confirmation of the search's winner, the files of the chosen candidate, and the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve

from etdev.app import files
from etdev.errors import TuneError
from etdev_tune.builder import Build
from etdev_tune.candidate import UNTUNED
from etdev_tune.front import with_front
from etdev_tune.outputs import Outputs, Tuning
from etdev_tune.record import LATENCY, Record
from etdev_tune.report import (
    FAILED,
    RAN,
    STATES,
    UNTRIED,
    WRONG,
    Confirmation,
    Limits,
    Report,
    Trial,
)
from etdev_tune.search import Attempt, Search


def finish(search: Search, outputs: Outputs) -> Tuning:
    """Confirm the best of a search, and write the chosen candidate.

    Raises:
        TuneError: Lowering it again gives another .pte, which is wrong.
        EtdevError: It can't be lowered or written.
    """
    best = search.best()
    chosen, other, confirmation = best, search.fallback(), None
    if other and other.record is best.record:
        other = None
    with files.unseen(outputs.program) as folder:
        hidden = Outputs(folder / outputs.program.name)
        if other and not search.comparison.can_confirm():
            search.finished, chosen = False, other
        record, build, lock = _written(search, chosen, hidden)
        if other and other.record and chosen is best:
            names = best.candidate.name, other.candidate.name
            confirmation = search.comparison.confirm(record, names[0], other.record, names[1])
            if not confirmation.clear:
                chosen = other
                _, build, lock = _written(search, other, hidden)
        report = _report(search, outputs, chosen, confirmation)
        outputs.publish(hidden, lock, report)
    return Tuning(outputs.program, outputs.registry, outputs.lock, build.plan, report)


def _written(search: Search, attempt: Attempt, hidden: Outputs) -> tuple[Record, Build, str]:
    """Lower a candidate from its registry file, as a user will; the last value is its lock's text.

    Raises:
        TuneError: That gives another .pte, which is not within the limits.
    """
    search.listener("write", attempt.candidate.name)
    for file in hidden.program.parent.iterdir():
        file.unlink()
    build, lock = search.builder.final(attempt.candidate, hidden.program, hidden.registry)
    assert attempt.record
    # From now on, the file that will be published is measured.
    record = Record(build, attempt.record.cases)
    if build.digest == attempt.record.build.digest:
        record.rounds = attempt.record.rounds
        return record, build, lock
    search.comparison.measurer.round([record], "final", 0)
    if not record.admitted(search.comparison.limits):
        what = f"{attempt.candidate.name}: lowering it again gives another .pte, which is wrong"
        raise TuneError("tuning", what, "a plugin is not deterministic; see etdev lower --verify")
    return record, build, lock


def _report(
    search: Search, outputs: Outputs, chosen: Attempt, confirmation: Confirmation | None
) -> Report:
    measurer = search.comparison.measurer
    trials = _trials(search.attempts, search.comparison.limits)
    return Report(
        program=outputs.program.name,
        chosen=chosen.candidate.name,
        verdict=_verdict(chosen.candidate.name, confirmation, search.finished, trials),
        objective=search.comparison.objective,
        limits=search.comparison.limits,
        target=measurer.runner.name,
        fingerprint=dict(measurer.fingerprint),
        threads=measurer.policy.threads,
        calls=sum(len(case.calls) for case in measurer.cases),
        timed=sum(len(case.timed) for case in measurer.cases),
        weights={case.method: case.weight for case in measurer.cases},
        budget_s=search.clock.budget_s,
        seconds=search.clock.spent,
        finished=search.finished,
        measured=measurer.taken,
        reused=measurer.reused,
        trials=trials,
        confirmation=confirmation,
        **search.facts(),
    )


def _verdict(
    name: str, confirmation: Confirmation | None, finished: bool, trials: Sequence[Trial]
) -> str:
    """Return the decision in a sentence."""
    if confirmation is None and finished:
        others = any(trial.state == RAN and trial.name != name for trial in trials)
        return (
            f"{name}: {'nothing that was tried is better' if others else 'nothing else ran right'}"
        )
    if confirmation is None:
        return f"{name}: the budget was spent before another was confirmed; give more to go on"
    if confirmation.ratio is None:
        return f"{name} stays: {confirmation.winner} could not be confirmed"
    cost = f"{confirmation.ratio} times the cost of {confirmation.against}"
    pairs = f"in {confirmation.rounds} pairs of fresh processes"
    if confirmation.clear:
        return f"{name}: {cost}, {pairs}"
    return f"{name} stays, without a clear win: {confirmation.winner} has {cost}, {pairs}"


def _trials(attempts: Sequence[Attempt], limits: Limits) -> tuple[Trial, ...]:
    """Return a trial for each attempt, the fastest first in each state, with the Pareto front."""
    plans = (a.record for a in attempts if a.candidate.name.startswith(UNTUNED) and a.record)
    untuned = next(plans, None)
    trials = [_trial(attempt, untuned, limits) for attempt in attempts]
    trials.sort(key=lambda t: (STATES.index(t.state), t.latency_ms.value if t.latency_ms else 0))
    return with_front(trials)


def _trial(attempt: Attempt, untuned: Record | None, limits: Limits) -> Trial:
    candidate, record = attempt.candidate, attempt.record
    trial = Trial(
        name=candidate.name,
        state=UNTRIED if attempt.is_untried else FAILED,
        detail=attempt.fault,
        plugins=candidate.plugins,
        options=candidate.options,
        pins=candidate.pins,
    )
    if record is None:
        return trial
    first = record.build.candidate.name
    trial = evolve(
        trial,
        same_as="" if first == candidate.name else first,
        delegates=record.build.delegates,
        portable_nodes=record.build.portable_nodes,
        size_bytes=record.build.size_bytes,
        runtime_bytes=record.build.runtime_bytes,
        rounds=len(record.rounds),
        memory_bytes=record.memory_bytes,
    )
    if record.failure or not record.rounds:
        return trial
    admitted = record.admitted(limits)
    compared = record.against(untuned, LATENCY) if untuned else None
    return evolve(
        trial,
        state=RAN if admitted else WRONG,
        detail=attempt.why if admitted else record.excess(limits),
        error=record.error if math.isfinite(record.error) else None,
        predicted_error=attempt.predicted_error,
        metric=record.metric,
        predicted_ms=attempt.predicted_ms,
        latency_ms=record.latency,
        against_untuned=compared,
    )
