"""Latency of a .pte: etdev's plans against ExecuTorch's own XNNPACK path.

PYTHONPATH=tests python -m benchmarks.latency [--models minilm] [--calls 200]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from benchmarks import record
from benchmarks.lowering import upstream
from executorch.runtime import Runtime
from support.models import decoders, minilm, nets

from etdev import Lowerer
from etdev.upstream.trees import flat

MODELS: Mapping[str, Callable[[], nets.Model]] = {
    "mlp": nets.mlp,
    "conv net": nets.conv_net,
    "int8 conv net": nets.quantised_conv_net,
    "attention": decoders.attention,
    "bert-2": nets.bert,
    "llama-2": nets.llama,
    "cached llama-2": nets.cached_llama,
    "mobilenet": nets.mobilenet,
    "resnet18": nets.resnet18,
    "minilm": minilm.model,
}
# What a plan without other backends may cost beyond ExecuTorch's own path: noise.
MOST = 1.03
ROUNDS = 6
# At least this long a round is measured for each side, in seconds of the clock.
LEAST_S = 0.5


class Side:
    """A loaded method, called and timed."""

    def __init__(self, program: bytes, inputs: Sequence[Any]) -> None:
        # The method reads the bytes and the program's memory as long as it lives. They are a copy
        # of its own, as a file would be.
        self.data = bytes(bytearray(program))
        self.program = Runtime.get().load_program(self.data)
        self.method = self.program.load_method("forward")
        self.inputs = list(inputs)

    def outputs(self) -> list[Any]:
        """A call's outputs, copied out of the method's memory."""
        return [value.clone() for value in self.method.execute(self.inputs)]

    def __call__(self) -> None:
        self.method.execute(self.inputs)


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds by the clock."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def in_turn(sides: Mapping[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """Times of each side, call by call in turn, so that a busy moment hits all of them."""
    for call in sides.values():
        for _ in range(5):
            call()
    order = list(sides)
    times: dict[str, list[float]] = {name: [] for name in order}
    start = time.perf_counter()
    while len(times[order[0]]) < calls or time.perf_counter() - start < LEAST_S * len(order):
        # Whoever comes second finds warmer caches.
        order.reverse()
        for name in order:
            times[name].append(timed(sides[name]))
    return times


def measure(name: str, calls: int) -> dict[str, Any]:
    """Lower a model both ways, check both against eager, time all of them."""
    module, inputs = MODELS[name]()
    with torch.no_grad():
        ours, theirs = (torch.export.export(module, inputs) for _ in range(2))
        programs = {
            "etdev": bytes(Lowerer(["cpu"]).lower(ours).to_executorch().buffer),
            "executorch": bytes(upstream(theirs).buffer),
        }
        expected = flat(module(*inputs))
        sides = {name: Side(program, inputs) for name, program in programs.items()}
        errors = {name: record.errors(s.outputs(), expected) for name, s in sides.items()}
        times = loaded_in_turn(programs, inputs, calls)
    pairs = zip(times["etdev"], times["executorch"], strict=True)
    return {
        "model": name,
        "calls": len(times["etdev"]),
        **{f"{side}_ms": median(found) for side, found in times.items()},
        "ratio": median(mine / other for mine, other in pairs),
        "same_bytes": programs["etdev"] == programs["executorch"],
        "max_error": errors,
    }


def loaded_in_turn(
    programs: Mapping[str, bytes], inputs: Sequence[Any], calls: int
) -> dict[str, list[float]]:
    """Times of programs, loaded afresh for each round and each first in every second one.

    Where its weights come to lie makes a .pte up to 4 % faster or slower than its own copy.
    """
    order = list(programs)
    times: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(ROUNDS):
        order.reverse()
        sides = {name: Side(programs[name], inputs) for name in order}
        for name, found in in_turn(sides, calls // ROUNDS).items():
            times[name] += found
    return times


def main() -> None:
    """Measure every model, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--calls", type=int, default=100, help="least number of timed calls")
    options = parser.parse_args()
    record.quiet()
    rows = [measure(name, options.calls) for name in options.models]
    middle = median(row["ratio"] for row in rows)
    bars = [record.Bar("median over models, etdev / ExecuTorch", middle, MOST)]
    bars += [record.Bar(f"{row['model']}, etdev / ExecuTorch", row["ratio"], MOST) for row in rows]
    timing = (
        "wall milliseconds per call, median; calls in turn, programs loaded afresh in each of "
        f"{ROUNDS} rounds; ratio is the median of paired calls"
    )
    record.save("latency", {"timing_of_calls": timing, "models": rows}, bars)
    record.columns(
        "latency per call in ms; ratio is XNNPACK through etdev / ExecuTorch's own path",
        [{**row, "max_error": max(row["max_error"].values())} for row in rows],
    )
    record.show("latency", bars)


if __name__ == "__main__":
    main()
