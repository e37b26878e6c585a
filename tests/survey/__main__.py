"""`python -m survey PART...` judges models in all orders of plugins, and records each verdict.

The parts are `zoo`, `suite` (ExecuTorch's operator tests), and torch's database of operators as
`float32`, `int64`, `bool` and `float16`. `aarch64 matrix`, `aarch64 precisions`, `aarch64
decoders` and `aarch64 zoo` are judged on other processors, in an emulator. Verdicts go to
tests/benchmarks/results/survey.json after each model, and their numbers to SURVEY.md beside that
folder; a model that is there is judged again only with --again or --open. Models are judged in
another process, whose end is the verdict on the model that it was asked about. Exits with 1 where a
verdict is a fault that tests/survey/cells.py doesn't expect.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from benchmarks import record
from support.processes import DiedError, Process
from support.results import by_line

from survey import parts, processors, table
from survey.judge import THEIRS, Verdict


def judged(worker: Process, part: str, name: str) -> table.Verdicts:
    """Judge a model in all orders, and in ExecuTorch's own path where one is not right."""
    unfit = _ask(worker, part, name, None)
    if unfit is not None:
        return {unfit.kind: str(unfit)}
    made: table.Verdicts = {}
    for order in parts.orders(part):
        if order != THEIRS or set(made.values()) != {"right"}:
            made[order] = str(_ask(worker, part, name, order))
    return made


def _ask(worker: Process, *question: Any) -> Verdict | None:
    try:
        verdict: Verdict | None = worker.ask(*question)
        return verdict
    except DiedError as error:
        return Verdict(str(error).split()[0], f"the process that lowered {error}")


def main() -> None:
    """Judge, print, save."""
    parser = argparse.ArgumentParser(prog="survey", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], metavar="PART")
    parser.add_argument("--again", action="store_true", help="judge what was judged before")
    parser.add_argument(
        "--open", action="store_true", help="judge what was neither right nor refused"
    )
    parser.add_argument("--every", type=int, default=1, help="judge only one of so many models")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no model after this")
    options = parser.parse_args()
    known = json.loads(table.RESULTS.read_text()) if table.RESULTS.exists() else {"parts": {}}
    worker, end = Process("survey.worker:verdict"), time.monotonic() + 60 * options.minutes
    faults: list[str] = []
    for part in options.parts or parts.NAMES:
        own = known["parts"].setdefault(part, {"models": {}})
        models = own["models"]
        if part == "suite" and (not models or options.again):
            models.update(parts.suite())
            _save(known, part)
        names = [] if part == "suite" else parts.names(part)
        # Of how many models there are; fewer may have been judged.
        own["of"] = len(names or models)
        for name in names[:: options.every]:
            done = name in models and not (options.open and table.is_open(models[name]))
            if time.monotonic() > end or (done and not options.again):
                continue
            models[name] = judged(worker, part, name)
            record.console.print(f"{part} {name}: {models[name]}", markup=False)
            _save(known, part)
        rows = list(table.rows(part, models))
        record.table(part, table.COLUMNS[1:], [row[1:] for row in rows])
        faults += table.faults(part, models, parts.expected(part))
    table.PAGE.write_text(table.page())
    worker.close()
    if faults:
        raise SystemExit("\n".join(["faults:", *faults]))


def _save(known: dict[str, Any], part: str) -> None:
    made = {key: value for key, value in record.circumstances().items() if key != "timing"}
    if part in processors.PARTS:
        made["emulator"] = processors.emulator()
    known["parts"][part]["circumstances"] = made
    table.RESULTS.write_text(by_line(known, 4) + "\n")


if __name__ == "__main__":
    main()
