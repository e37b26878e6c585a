"""The compile stage in one process and in two, side by side, and the bytes of both.

PYTHONPATH=tests python -m benchmarks.executors [--models bert-12 mobilenets-16] [--jobs 2]

By the clock, so the machine has to be quiet; a minute for BERT-12, some for the nets. Beside it the
processor seconds of the workers, in which they import torch, too.

The nets are alike in nothing that a compiler could use again, so that two processes can share the
work; XNNPACK takes about 3 s for each, and a worker as long again for its first. BERT's layers are
compiled once and filled with weights, all in a third of that. So there is nothing to gain there,
and the promise is that little is lost.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import asdict, astuple, frozen
from benchmarks import record
from benchmarks.lowering import bert, exported, upstream
from etdev_cpu import compiler
from support.models import nets
from torch.export import ExportedProgram

from etdev import Lowerer

ROUNDS = {"bert-12": 2, "mobilenets-16": 1}
# Of two processes; more of them on two cores promise nothing.
BOUND = 1.7
# Of one process's time, where it is the quicker one.
LOST = 1.1
# Of the time that ExecuTorch's own lowering takes, by the clock.
WHOLE = 0.28
SIDES = ("one", "several")


def mobilenets(count: int = 16) -> dict[str, ExportedProgram]:
    """MobileNetV2 in several widths, a method each."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    programs = {}
    for number in range(count):
        torch.manual_seed(number)
        config = MobileNetV2Config(image_size=64, depth_multiplier=0.35 + 0.05 * number)
        model = nets.Only(MobileNetV2Model(config).eval(), "last_hidden_state")
        programs[f"net_{number}"] = exported((model, (torch.randn(1, 3, 64, 64),)))
    return programs


MODELS: dict[str, Callable[[], Any]] = {
    "bert-12": lambda: exported(bert()),
    "mobilenets-16": mobilenets,
}


def main() -> None:
    """Measure, print, save."""
    options = _options()
    record.quiet()
    rows = [compared(name, options.jobs) for name in options.models]
    promises = []
    for row in rows:
        who = f"{row['model']}, {row['jobs']} processes"
        if row["model"] == "bert-12":
            lost = 1 / row["ratio"]
            promises.append(record.Bar(f"{who}, compile stage, of one's time", lost, LOST))
        else:
            what = f"{who}, compile stage, times as fast"
            promises.append(record.Bar(what, row["ratio"], BOUND, least=True))
        if row["upstream_s"]:
            whole = row["several"]["whole_s"] / row["upstream_s"]
            promises.append(record.Bar(f"{who}, whole, of ExecuTorch's time", whole, WHOLE))
    record.save("executors", {"models": rows, "load": os.getloadavg()}, promises)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    sides = [{"model": r["model"], "": side, **r[side]} for r in rows for side in SIDES]
    record.columns(f"one process and several, {load}", sides)
    record.show("executors", promises)


@frozen
class Run:
    """A lowering in seconds.

    Args:
        compile_s: Its compile stage by the clock.
        whole_s: All of it by the clock.
        workers_cpu_s: Processor time of the workers, from their start to their end.
    """

    compile_s: float
    whole_s: float
    workers_cpu_s: float


def compared(name: str, jobs: int) -> dict[str, Any]:
    """Both on one model, in turn."""
    program = MODELS[name]()
    compiled(exported(nets.mlp()), 1)
    upstream_s = 0.0
    if name == "bert-12":
        record.console.print(f"{name}: upstream ...")
        upstream_s = record.clock(lambda: upstream(program))[0].wall_s
    counts = dict(zip(SIDES, (1, jobs), strict=True))
    sides = {side: partial(compiled, program, count) for side, count in counts.items()}
    runs = record.in_turn(name, sides, ROUNDS[name])
    if len({file for own in runs.values() for file, _ in own}) != 1:
        raise SystemExit(f"{name}: {jobs} processes give another .pte")
    one, several = (_middle([run for _, run in own]) for own in runs.values())
    return {
        "model": name,
        "jobs": jobs,
        "upstream_s": upstream_s,
        "one": asdict(one),
        "several": asdict(several),
        "ratio": one.compile_s / several.compile_s,
    }


def compiled(program: Any, jobs: int) -> tuple[bytes, Run]:
    """The .pte, and what it took."""
    # What earlier rounds have compiled is not to be known.
    compiler._TEMPLATES.clear()
    before = _workers_cpu_s()

    def lower() -> tuple[float, bytes]:
        lowered = Lowerer(["cpu"], cache=False, jobs=jobs).lower(program)
        return lowered.stages.seconds["compile"], lowered.to_executorch().buffer

    took, (compile_s, file) = record.clock(lower)
    return file, Run(compile_s, took.wall_s, _workers_cpu_s() - before)


def _workers_cpu_s() -> float:
    """Processor time of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _middle(runs: list[Run]) -> Run:
    return Run(*map(statistics.median, zip(*map(astuple, runs), strict=True)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="one process against several")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
