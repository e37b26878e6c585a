"""Whole lowerings against ExecuTorch's own, the loop's share of them, and two plugins against one.

PYTHONPATH=tests python -m benchmarks.lowering [--models llama-12]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from attrs import asdict
from benchmarks import record
from benchmarks.chain import Chain, Null
from etdev_cpu import compiler
from etdev_cpu.compiler import XnnpackByStructure
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from support.models import minilm, nets
from torch.export import ExportedProgram

from etdev import KeepWhole, Lowerer, hookimpl

ROUNDS = 2
# Most of ExecuTorch's own time, for a cold lowering in one process.
MOST = 0.4
TOKENS = 64
Job = Callable[[], Any]


class Idle:
    """Asks for nothing and claims nothing."""

    name = "idle"

    @hookimpl
    def claim_nodes(self) -> None:
        return None


class Wishful(Idle):
    """Wants ops whole and claims none of them, so that they are decomposed for the others."""

    name = "wishful"

    @hookimpl
    def keep_whole(self) -> KeepWhole:
        aten = torch.ops.aten
        return KeepWhole([aten.linear.default, aten.layer_norm.default, aten.gelu.default])


def bert() -> nets.Model:
    """BERT as transformers makes it by default: 12 layers of 768."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = nets.Only(BertModel(BertConfig()).eval(), "last_hidden_state")
    return model, (torch.randint(0, 1000, (1, TOKENS)),)


def llama() -> nets.Model:
    """A 12-layer Llama of 256."""
    sizes = {"hidden_size": 256, "intermediate_size": 688, "vocab_size": 4096}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    model = nets.llama_of(12, TOKENS, **sizes, **heads)
    return nets.Only(model, "logits", use_cache=False), (torch.randint(0, 4096, (1, TOKENS)),)


MODELS = {"bert-12": bert, "minilm-l6": minilm.model, "llama-12": llama}


def main() -> None:
    """Measure, print, save."""
    options = _options()
    record.quiet()
    tiny = exported(nets.mlp())
    for call in (upstream, etdev):
        call(tiny)
    rows = [compared(name) for name in options.models]
    pairs = [] if options.no_plugins else plugins_compared(options.models)
    promises = bars(rows, pairs)
    record.save("lowering", {"models": rows, "plugins": pairs}, promises)
    _print(rows, pairs)
    record.show("lowering", promises)


def bars(rows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> list[record.Bar]:
    """The promises that these models can check."""
    found = [record.Bar(f"{r['model']}, time of upstream's", r["ratio"], MOST) for r in rows]
    total = sum(r["etdev_s"] for r in rows) / sum(r["upstream_s"] for r in rows)
    found.append(record.Bar("together, time of upstream's", total, MOST))
    # Of upstream's time, since whatever else gets quicker makes the share of ours grow.
    found += [
        record.Bar(
            f"{r['model']}, the loop, of upstream's time", r["loop_share"] * r["ratio"], 0.02
        )
        for r in rows
    ]
    for pair in pairs:
        if pair["bound"]:
            what = f"{pair['what']}, two plugins for one"
            found.append(record.Bar(what, pair["ratio"], pair["bound"]))
    return found


def exported(model: nets.Model) -> ExportedProgram:
    """The ATen program of a model."""
    with torch.no_grad():
        return torch.export.export(*model)


def upstream(program: ExportedProgram) -> Any:
    """ExecuTorch's own whole lowering."""
    manager = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return manager.to_executorch()


def etdev(program: ExportedProgram, plugins: Sequence[Any] = ("cpu",)) -> Any:
    """Ours; the plan and the stopwatch come with it."""
    lowered = Lowerer(plugins).lower(program)
    lowered.to_executorch()
    return lowered


def compared(name: str) -> dict[str, Any]:
    """Both sides on one model, in turn."""
    export, program = record.clock(lambda: exported(MODELS[name]()))
    parts: list[dict[str, float]] = []

    def ours() -> Any:
        # What it knows of an earlier lowering.
        compiler._TEMPLATES.clear()
        with preprocessing() as seconds:
            lowered = etdev(program)
        parts.append({**lowered.stages.seconds, "preprocess": sum(seconds)})
        return len(lowered.plan.partitions)

    (mine, theirs), delegates = alternated(name, ours, lambda: upstream(program))
    whole, other = record.median(mine), record.median(theirs)
    stages = {key: statistics.median(part[key] for part in parts) for key in parts[0]}
    shares = [share(part, took.wall_s) for part, took in zip(parts, mine, strict=True)]
    return {
        "model": name,
        "delegates": delegates,
        "export_s": export.cpu_s,
        "etdev_s": whole,
        "upstream_s": other,
        "ratio": whole / other,
        "etdev_runs": [asdict(took) for took in mine],
        "upstream_runs": [asdict(took) for took in theirs],
        "stages_wall_s": stages,
        "loop_share": statistics.median(shares),
    }


@contextmanager
def preprocessing() -> Iterator[list[float]]:
    """Time XNNPACK's own work: the seconds of each partition by the clock."""
    seconds, preprocess = list[float](), XnnpackByStructure.preprocess

    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return preprocess(*arguments, **named)
        finally:
            seconds.append(time.perf_counter() - start)

    with mock.patch.object(XnnpackByStructure, "preprocess", staticmethod(timed)):
        yield seconds


def share(part: dict[str, float], whole: float) -> float:
    """Return the loop's share of a lowering: all but conversion, backend and emission."""
    own = part["plan"] + part["split"] + part["compile"] + part["join"] - part["preprocess"]
    return own / whole


def plugins_compared(names: Sequence[str]) -> list[dict[str, Any]]:
    """One plugin against the same with a second before it."""
    chain = exported((Chain(300).eval(), (torch.randn(2, 4),)))
    found = [_pair("chain of 300, idle", chain, [Null()], [Idle(), Null()], 1.1)]
    if "bert-12" in names:
        program = exported(bert())
        found.append(_pair("bert-12, idle", program, ["cpu"], [Idle(), "cpu"], 1.1))
        found.append(_pair("bert-12, wishful", program, ["cpu"], [Wishful(), "cpu"], None))
    return found


def _pair(
    what: str,
    program: ExportedProgram,
    one: Sequence[Any],
    two: Sequence[Any],
    bound: float | None,
) -> dict[str, Any]:
    first, second = (lambda: etdev(program, one)), (lambda: etdev(program, two))
    (single, double), _ = alternated(what, first, second)
    return {
        "what": what,
        "one_s": record.median(single),
        "two_s": record.median(double),
        "ratio": record.median(double) / record.median(single),
        "bound": bound,
        "one_runs": [asdict(took) for took in single],
        "two_runs": [asdict(took) for took in double],
    }


def alternated(what: str, a: Job, b: Job) -> tuple[tuple[list[record.Took], ...], Any]:
    """Return times of two jobs in turn, and A's last result."""
    runs = record.in_turn(
        what, {"a": lambda: record.clock(a), "b": lambda: record.clock(b)}, ROUNDS
    )
    return tuple([took for took, _ in own] for own in runs.values()), runs["a"][-1][1]


def _print(rows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> None:
    keys = ("model", "delegates", "etdev_s", "upstream_s", "ratio", "loop_share")
    record.columns("whole lowerings with XNNPACK", rows, keys)
    record.parts("etdev's stages by the clock", rows, "stages_wall_s")
    record.columns("two plugins", pairs, ("what", "one_s", "two_s", "ratio"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="whole lowerings against ExecuTorch's own")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--no-plugins", action="store_true", help="leave out two against one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
