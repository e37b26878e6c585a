"""Trials of a report, made of the attempts of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import asdict, evolve

from etdev.schema.limits import Limits
from etdev_tune.attempts import Attempt
from etdev_tune.candidate import UNTUNED
from etdev_tune.exchange import BUDGET_SPENT
from etdev_tune.record import LATENCY, Record
from etdev_tune.report import FAILED, RAN, STATES, UNTRIED, WRONG, Trial


def trials_of(attempts: Sequence[Attempt], tolerance: float) -> tuple[Trial, ...]:
    """Return a trial for each attempt, the fastest first in each state, with the Pareto front."""
    untuned = next((a.record for a in attempts if a.candidate.name == UNTUNED), None)
    names: dict[int, str] = {}
    trials = []
    for attempt in attempts:
        trial = _trial(attempt, untuned, tolerance)
        if attempt.record:
            first = names.setdefault(id(attempt.record), trial.name)
            trial = evolve(trial, same_as=first if first != trial.name else "")
        trials.append(trial)
    trials.sort(key=lambda t: (STATES.index(t.state), t.latency_ms.value if t.latency_ms else 0))
    return tuple(evolve(trial, front=_is_front(trial, trials)) for trial in trials)


def _trial(attempt: Attempt, untuned: Record | None, tolerance: float) -> Trial:
    candidate, record = attempt.candidate, attempt.record
    trial = Trial(
        name=candidate.name,
        state=UNTRIED if attempt.is_untried else FAILED,
        detail=BUDGET_SPENT if attempt.is_untried else str(attempt.outcome) if not record else "",
        plugins=candidate.plugins,
        options={p: {k: _text(v) for k, v in own.items()} for p, own in candidate.options.items()},
        limits={plugin: _limits(own) for plugin, own in candidate.limits.items()},
        pins=tuple(map(str, candidate.pins)),
    )
    if record is None:
        return trial
    build = record.build
    trial = evolve(
        trial,
        delegates=build.delegates,
        portable_nodes=build.fallback,
        size_bytes=build.size_bytes,
        build_s=build.seconds,
        rounds=len(record.rounds),
        memory_bytes=record.memory_bytes,
    )
    if record.failure:
        return evolve(trial, detail=str(record.failure))
    if not record.rounds:
        return trial
    compared = record.against(untuned, LATENCY) if untuned and untuned is not record else None
    return evolve(
        trial,
        state=RAN if record.admitted(tolerance) else WRONG,
        detail="" if record.admitted(tolerance) else f"error above {tolerance:g}",
        error=record.error if math.isfinite(record.error) else None,
        latency_ms=record.latency,
        against_untuned=compared,
    )


def _is_front(trial: Trial, trials: Sequence[Trial]) -> bool:
    """Return True if no other trial is at least as fast, small and exact, and better in one."""
    own = _figures(trial)
    if own is None or trial.same_as:
        return False
    known = [figures for other in trials if (figures := _figures(other)) and figures != own]
    return not any(all(a <= b for a, b in zip(other, own, strict=True)) for other in known)


def _figures(trial: Trial) -> tuple[float, float, float] | None:
    if trial.state not in (RAN, WRONG) or trial.latency_ms is None or trial.error is None:
        return None
    return trial.latency_ms.value, float(trial.size_bytes), trial.error


def _limits(limits: Limits) -> str:
    return ", ".join(f"{key}={value}" for key, value in asdict(limits).items() if value is not None)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
