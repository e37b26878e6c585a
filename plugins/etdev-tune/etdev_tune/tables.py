"""Tables and lines that `etdev tune` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etdev.errors import EtdevError
from etdev.schema.report.sheet import Sheet, size
from etdev_tune.report import TUNING, Estimate, Report, Trial


def report_sheets(report: Report) -> list[Sheet]:
    """Return the candidates and the moves of a tuning as tables."""
    columns = ("candidate", "ms", "vs untuned", "error", "size", "delegates", "portable", "")
    sheets = [Sheet(columns, [_trial(t, report.chosen) for t in report.trials], "candidates")]
    if report.moves:
        moves = [(m.name, _ratio(m.measured), m.why) for m in report.moves]
        sheets.append(Sheet(("move", "measured", "why"), moves, "moves"))
    return sheets


def report_lines(report: Report, output: Path) -> Iterator[str]:
    """Yield the decision, the target and the files."""
    from etdev_tune.outputs import Outputs

    outputs = Outputs(output)
    target = ", ".join(dict.fromkeys([report.target, report.fingerprint.get("cpu", "")]))
    yield f"{output}: {report.verdict}"
    yield (
        f"{output}: measured on {target.rstrip(', ')} with {report.threads} threads; "
        f"{report.measured} measurements, {report.reused} reused, {report.seconds:.0f} s"
    )
    yield from (f"{output}: {note}" for note in report.notes)
    yield f"{output}: made again by etdev lower --registry {outputs.registry}; lock {outputs.lock}"


def read_report(output: Path) -> Report:
    """Read the report next to a .pte.

    Raises:
        EtdevError: It can't be read.
    """
    from etdev_tune.outputs import Outputs

    file = Outputs(output).report
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        cure = f"write it with etdev tune SOURCE -o {output}"
        raise EtdevError(str(file), f"can't be read ({error.strerror})", cure) from error
    return TUNING.read(text, Report, str(file))


def kept_lines(folder: Path | None) -> Iterator[str]:
    """Yield the number of measurements in the store, by target."""
    from etdev_tune.store import Store, default_folder

    store = Store(folder or default_folder())
    programs: dict[str, list[str]] = {}
    for key in store.kept():
        target = key["target"]
        name = ", ".join(filter(None, (target.get("cpu", ""), target.get("executorch", ""))))
        programs.setdefault(name, []).append(key["program"])
    for name, own in sorted(programs.items()):
        yield f"{store.folder}: {len(own)} measurements of {len(set(own))} programs on {name}"
    if not programs:
        yield f"{store.folder}: no measurements"


def _trial(trial: Trial, chosen: str) -> tuple[str, ...]:
    marks = [trial.detail or (f"same as {trial.same_as}" if trial.same_as else "")]
    marks = ["chosen" if trial.name == chosen else "", "front" if trial.front else "", *marks]
    error = "-" if trial.error is None else f"{trial.error:.1e}"
    counts = (str(trial.delegates), str(trial.portable_nodes)) if trial.size_bytes else ("-", "-")
    bytes_of = size(trial.size_bytes) if trial.size_bytes else "-"
    latency = str(trial.latency_ms or "-")
    ratio = _ratio(trial.against_untuned)
    words = ", ".join(filter(None, marks))
    return (trial.name, latency, ratio, error, bytes_of, *counts, words)


def _ratio(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate}x"
