"""The finish: the best of the search is confirmed, or the untuned plan stays, and is written."""

from __future__ import annotations

from attrs import evolve

from etdev.errors import TuneError
from etdev.schema.lock import Lock
from etdev.schema.tuning import Confirmation, Report
from etdev.tuning.builder import Build
from etdev.tuning.candidate import UNTUNED
from etdev.tuning.confirm import Confirmer
from etdev.tuning.outputs import Outputs
from etdev.tuning.record import Record
from etdev.tuning.report import trials_of
from etdev.tuning.search import Attempt, Search
from etdev.tuning.tuning import Tuning


def finish(search: Search, outputs: Outputs) -> Tuning:
    """Confirm the best of a search, and write what is chosen.

    Raises:
        TuneError: What is written is not what was measured.
        EtdevError: It can't be lowered or written.
    """
    best, stays = search.best(), search.fallback()
    assert best
    with outputs.out_of_sight() as hidden:
        build, lock = _final(search, best, hidden)
        confirmation = None
        if stays and stays is not best:
            confirmation = _confirmed(search, best, build, stays)
        chosen = best
        if stays and (confirmation is None or not confirmation.clear) and stays is not best:
            chosen = stays
            build, lock = _final(search, stays, hidden)
        report = _report(search, outputs, chosen, confirmation)
        outputs.publish(hidden, lock, report)
    return Tuning(outputs.program, outputs.registry, outputs.lock, build.plan, report)


def _final(search: Search, attempt: Attempt, hidden: Outputs) -> tuple[Build, Lock]:
    """Lower a candidate from its registry file, which has to give the bytes that were measured."""
    if search.listener:
        search.listener("write", attempt.candidate.name)
    for file in hidden.program.parent.iterdir():
        file.unlink()
    build, lock = search.builder.final(attempt.candidate, hidden.program, hidden.registry)
    assert attempt.record
    if build.digest != attempt.record.build.digest:
        what = f"{attempt.candidate.name}: lowering it again gives another .pte"
        raise TuneError("tuning", what, "a plugin or the model is not deterministic; report this")
    return build, lock


def _confirmed(search: Search, best: Attempt, build: Build, stays: Attempt) -> Confirmation:
    assert best.record
    assert stays.record
    # The file that will be published is the one that is loaded.
    record = Record(evolve(build, candidate=best.candidate), best.record.cases)
    record.rounds.update(best.record.rounds)
    names = best.candidate.name, stays.candidate.name
    confirmation = Confirmer(search.contest).confirm(record, names[0], stays.record, names[1])
    best.record.rounds.update(record.rounds)
    return confirmation


def _report(
    search: Search, outputs: Outputs, chosen: Attempt, confirmation: Confirmation | None
) -> Report:
    measurer = search.contest.measurer
    notes = [measurer.sentinel.summary] if measurer.sentinel.disturbed else []
    if not search.finished:
        notes.append("the budget ended before the search did")
    trials = trials_of(search.attempts, search.contest.tolerance)
    untuned = next((trial.detail for trial in trials if trial.name == UNTUNED), "")
    return Report(
        program=outputs.program.name,
        chosen=chosen.candidate.name,
        verdict=_verdict(chosen, confirmation, untuned),
        objective=search.contest.objective,
        tolerance=search.contest.tolerance,
        target=measurer.runner.name,
        fingerprint=dict(measurer.fingerprint),
        threads=measurer.policy.threads,
        calls=sum(len(case.calls) for case in measurer.cases),
        timed=sum(len(case.timed) for case in measurer.cases),
        budget_s=search.clock.budget_s,
        seconds=search.clock.spent,
        finished=search.finished,
        measured=measurer.taken,
        reused=measurer.reused,
        disturbed=measurer.sentinel.disturbed,
        notes=tuple(notes),
        trials=trials,
        moves=tuple(search.moves),
        confirmation=confirmation,
    )


def _verdict(chosen: Attempt, confirmation: Confirmation | None, untuned: str) -> str:
    """What was decided, in a sentence.

    Args:
        chosen: What was written.
        confirmation: The last comparison; None if nothing else came into question.
        untuned: Why the untuned plan itself did not, if so.
    """
    name = chosen.candidate.name
    aside = f" ({UNTUNED}: {untuned})" if untuned else ""
    if confirmation is None:
        return f"{name}: nothing that was tried is better{aside}"
    if confirmation.ratio is None:
        return f"{name} stays: {confirmation.winner} could not be confirmed{aside}"
    cost = f"{confirmation.ratio} times the cost of {confirmation.against}"
    pairs = f"in {confirmation.rounds} pairs of fresh processes{aside}"
    if confirmation.clear:
        return f"{name}: {cost}, {pairs}"
    return f"{name} stays, without a clear win: {confirmation.winner} has {cost}, {pairs}"
