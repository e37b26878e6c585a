"""What `etdev tune` gains: tuned plans against untuned ones, single plugins and other runtimes.

PYTHONPATH=tests python -m benchmarks.tune [--models minilm vit-6] [--budget 300] [--threads 1 2]
    [--merge tests/benchmarks/results/tune.json]     keeps the rows of models not measured now
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from attrs import asdict
from benchmarks import record, rivals
from benchmarks.lowering import upstream
from etdev_tune.exchange import Failure, Request
from etdev_tune.runners import Local
from etdev_tune.statistics import ratio_of
from support.models import minilm, nets
from support.processes import DiedError, FailedError, apart

import etdev
from etdev import EtdevError, Lowerer
from etdev.errors import first_line
from etdev.upstream.trees import flat

MODELS: Mapping[str, Callable[[], nets.Model]] = {
    "minilm": minilm.model,
    "bert-2": nets.bert,
    "resnet18": nets.resnet18,
    "mobilenet": nets.mobilenet,
    "vit-6": nets.vit,
    "convnext": nets.convnext,
    "cached llama-2": nets.cached_llama,
    "int8 conv net": nets.quantised_conv_net,
    "gru": nets.gru,
    "hybrid": nets.hybrid,
}
ROUNDS = 6
# So many of the other runtimes are compared again, in so many processes each.
REMATCHED, REMATCHES = 2, 3
# A tuned plan may lose that much to the best of what it was chosen from, or to another runtime that
# it is level with: noise.
MOST = 1.03
GAIN = 1.25
TOLERANCE = 1e-3


def programs(name: str, folder: Path, budget_s: float, threads: int) -> tuple[dict[str, Path], Any]:
    """The .pte of each side that could be lowered, and the tuning."""
    module, inputs = MODELS[name]()
    exported = torch.export.export(module, inputs)
    plugins = [known.name for known in _useful()]
    tuning = etdev.tune(
        exported,
        path=folder / "tuned.pte",
        plugins=plugins,
        budget_s=budget_s,
        tolerance=TOLERANCE,
        policy=threads,
        store=False,
        cache=folder / "cache",
    )
    sides: dict[str, Path] = {"tuned": tuning.program}
    orders = {"untuned": plugins, **{f"{name} alone": [name] for name in plugins}}
    for side, order in orders.items():
        try:
            lowered = Lowerer(order, cache=folder / "cache").lower(exported)
            sides[side] = lowered.save(folder / f"{side}.pte")
        except EtdevError as error:
            record.console.print(f"{name}, {side}: {first_line(error)}", markup=False)
    try:
        # With gradients on it traces caches wrongly.
        with torch.no_grad():
            buffer = upstream(torch.export.export(module, inputs)).buffer
        sides["executorch"] = folder / "executorch.pte"
        sides["executorch"].write_bytes(buffer)
    except Exception as error:
        record.console.print(f"{name}, executorch: {first_line(error)}", markup=False)
    return sides, tuning


def _useful() -> list[Any]:
    """The plugins that can compile here, in the registry's order."""
    from etdev.registry import load
    from etdev.registry.selection import discover

    return [f for f in discover(load()) if f.plugin and f.asked and not f.probed.unfit]


def measure(
    runner: Local, sides: Mapping[str, Path], name: str, threads: int
) -> tuple[dict[str, list[list[float]]], dict[str, float]]:
    """Times of each side by round, each in a new process and in turn, and errors."""
    module, inputs = MODELS[name]()
    with torch.no_grad():
        expected = flat(module(*inputs))
    times: dict[str, list[list[float]]] = {side: [] for side in sides}
    errors: dict[str, float] = {}
    order = list(sides)
    for number in range(ROUNDS):
        for side in reversed(order) if number % 2 else order:
            request = Request(
                sides[side], (tuple(flat(inputs)),), outputs=not number, threads=threads
            )
            answer = runner.run(request)
            if isinstance(answer, Failure):
                record.console.print(f"{name}, {side}: {answer}", markup=False)
                times.pop(side, None)
                order = [known for known in order if known != side]
                continue
            times[side].append([time / 1e6 for time in answer.times_ns[0]])
            if not number:
                errors[side] = record.errors(answer.outputs[0], expected)
    return times, errors


def rival(side: str, name: str, threads: int) -> dict[str, Any] | None:
    """What another runtime takes, in a process of its own; None if it can't."""
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environ = dict.fromkeys(variables, str(threads))
    try:
        answer: dict[str, Any] = apart(
            "benchmarks.rivals:measure", side, name, threads, timeout_s=600, environ=environ
        )
    except (DiedError, FailedError) as error:
        record.console.print(f"{name}, {side}: {error}", markup=False)
        return None
    return answer


def rematch(
    runner: Local, tuned: Path, others: Sequence[str], name: str, threads: int
) -> dict[str, float]:
    """Medians of the tuned .pte and of other runtimes, in turn, each in new processes."""
    inputs = (tuple(flat(MODELS[name]()[1])),)
    medians: dict[str, list[float]] = {side: [] for side in ("tuned", *others)}
    for _ in range(REMATCHES):
        for side, own in medians.items():
            if side == "tuned":
                answer = runner.run(Request(tuned, inputs, threads=threads))
                own += [] if isinstance(answer, Failure) else [median(answer.times_ns[0]) / 1e6]
            elif known := rival(side, name, threads):
                own.append(median(known["times_ms"]))
    return {side: median(own) for side, own in medians.items()}


def row(runner: Local, name: str, budget_s: float, threads: int) -> dict[str, Any]:
    """Everything about one model with so many threads."""
    with tempfile.TemporaryDirectory() as folder:
        sides, tuning = programs(name, Path(folder), budget_s, threads)
        times, errors = measure(runner, sides, name, threads)
        medians = {side: median(median(calls) for calls in own) for side, own in times.items()}
        own = [s for s in medians if s != "tuned" and errors[s] <= TOLERANCE]
        best = min(own, key=medians.__getitem__, default="")
        for side in rivals.installed():
            if known := rival(side, name, threads):
                medians[side], errors[side] = median(known["times_ms"]), known["error"]
        others = [s for s in rivals.installed() if s in medians and errors[s] <= TOLERANCE]
        others = sorted(others, key=medians.__getitem__)[:REMATCHED]
        again = rematch(runner, sides["tuned"], others, name, threads)
    fastest = min(others, key=again.__getitem__, default="")
    report = tuning.report
    return {
        "model": name,
        "threads": threads,
        "date": date.today().isoformat(),
        "machine": dict(report.fingerprint),
        "ms": medians,
        "errors": errors,
        "best": best,
        "tuned_over_best": _ratio(times, "tuned", best),
        "tuned_over_executorch": _ratio(times, "tuned", "executorch"),
        "fastest_rival": fastest,
        "ms_in_turn": again,
        "tuned_over_rival": again["tuned"] / again[fastest] if fastest else None,
        "chosen": report.chosen,
        "verdict": report.verdict,
        "seconds": report.seconds,
        "measured": report.measured,
        "moves_taken": [trial.name for trial in report.trials if trial.detail.startswith("taken")],
    }


def _ratio(times: Mapping[str, Sequence[Sequence[float]]], one: str, other: str) -> Any:
    if one not in times or other not in times:
        return None
    return asdict(ratio_of(times[one], times[other]))


def merged(
    kept: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Rows of an earlier run, those that were measured again in their place, and the rest."""
    by_key = {(r["model"], r["threads"]): r for r in (*kept, *new)}
    return list(by_key.values())


def bars_of(rows: Sequence[Mapping[str, Any]]) -> list[record.Bar]:
    """What is promised: never slower than what it was chosen from, and faster than ExecuTorch."""
    bars = [
        record.Bar(
            f"{r['model']}, {r['threads']} threads: tuned / {r['best']}",
            r["tuned_over_best"]["value"],
            MOST,
        )
        for r in rows
        if r["tuned_over_best"]
    ]
    gains = [1 / r["tuned_over_executorch"]["value"] for r in rows if r["tuned_over_executorch"]]
    if gains:
        what = "geometric mean, ExecuTorch's own path / tuned"
        bars.append(record.Bar(what, geometric_mean(gains), GAIN, least=True))
    for threads in sorted({r["threads"] for r in rows}):
        known = [r for r in rows if r["threads"] == threads and r["tuned_over_rival"]]
        level = [r["tuned_over_rival"] <= MOST for r in known]
        if level:
            what = f"models level with the fastest other runtime, of all, {threads} threads"
            bars.append(record.Bar(what, sum(level) / len(level), 0.5, least=True))
    return bars


def main() -> None:
    """Tune every model, measure all sides, print the tables, keep them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of each tuning")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--merge", type=Path, help="JSON of an earlier run, whose rows are kept")
    options = parser.parse_args()
    kept = json.loads(options.merge.read_text())["rows"] if options.merge else []
    record.quiet()
    runner, new = Local(), []
    for name in options.models:
        for threads in options.threads:
            new.append(row(runner, name, options.budget, threads))
            rows = merged(kept, new)
            # What is done is kept, whatever becomes of the rest.
            timing = {"timing": "ms by the clock, median; threads, day and machine are each row's"}
            circumstances = {**record.circumstances(), **timing}
            record.save("tune", {"circumstances": circumstances, "rows": rows}, bars_of(rows))
            record.console.print(f"{name}, {threads} threads: {new[-1]['verdict']}", markup=False)
    runner.close()
    record.table(
        "ms per call, median; a runtime that is off by more than 1e-3 is in brackets",
        ["model", "threads", *_sides(rows), "tuned / best", "executorch / tuned", "tuned / rival"],
        [_cells(r, _sides(rows)) for r in rows],
    )
    record.show("tune", bars_of(rows))


def _sides(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(side for r in rows for side in r["ms"]))


def _cells(known: Mapping[str, Any], sides: Sequence[str]) -> list[str]:
    cells = [known["model"], str(known["threads"])]
    for side in sides:
        text = f"{known['ms'][side]:.3f}" if side in known["ms"] else "-"
        wrong = known["errors"].get(side, 0.0) > TOLERANCE
        cells.append(f"({text})" if wrong else text)
    best, upstream = known["tuned_over_best"], known["tuned_over_executorch"]
    cells.append(f"{best['value']:.2f}" if best else "-")
    cells.append(f"{1 / upstream['value']:.2f}" if upstream else "-")
    rival_ratio = known["tuned_over_rival"]
    cells.append(f"{rival_ratio:.2f} ({known['fastest_rival']})" if rival_ratio else "-")
    return cells


if __name__ == "__main__":
    main()
