"""A decoder by etdev, by ExecuTorch's own path and by transformers' exporter: size, time, speed.

PYTHONPATH=tests python -m benchmarks.llm [--hidden 256 --layers 4] [--quantize 8da4w]

ExecuTorch's path is given the same two methods, with a cache for each, since it can't share one.
A side whose logits are not those of PyTorch fails, and nothing is compared with it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attrs import frozen
from benchmarks import record
from decoders import rivals
from etdev_llm import generation
from etdev_llm.comparison import Comparison, expected, tolerance_of
from etdev_llm.player import Player
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from etdev import Lowerer

# Of the two files of transformers.exporters, and of ExecuTorch's lowering time.
MOST_BYTES, MOST_TIME, LEAST_SPEED = 0.55, 0.45, 0.97
LENGTH, PROMPT, STEPS, ROUNDS = 128, 64, 24, 3


@frozen
class Side:
    """A decoder made in one way.

    Args:
        took: The time of the lowering.
        size: Bytes of its files.
        prefill: Computes the prompt.
        decode: Computes a token at a position.
    """

    took: record.Took
    size: int
    prefill: Callable[[], Any]
    decode: Callable[[int], Any]


def by_etdev(model: Any, folder: Path, tolerance: float) -> Side:
    """Lower it with etdev, and compare a generation with eager PyTorch."""
    made = generation(model, LENGTH)
    lowerer = Lowerer(["cpu"], cache=False)
    took, path = record.clock(
        lambda: lowerer.lower(made.methods, settings=made.settings).save(folder / "net.pte")
    )
    player, done = Player(path), Comparison("etdev", tolerance)
    steps = player.generate(range(PROMPT), STEPS)
    done.compare(steps, expected(model, steps))
    prompt = list(range(PROMPT))
    return Side(
        took,
        path.stat().st_size,
        lambda: player._step(prompt, 0, False),
        lambda at: player._step([7], at, True),
    )


@torch.no_grad()
def by_executorch(model: Any, folder: Path, tolerance: float) -> Side:
    """Lower the same methods with ExecuTorch's own conversion."""
    methods = generation(model, LENGTH).methods

    def lower() -> Any:
        programs = {}
        with torch.no_grad():
            for name in ("prefill", "decode"):
                module, inputs, *sizes = methods[name]
                shapes = sizes[0] if sizes else None
                programs[name] = torch.export.export(module, inputs, dynamic_shapes=shapes)
        edge = to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
        own = [InitializedMutableBufferPass(["cache"])]
        config = ExecutorchBackendConfig(passes=own, memory_planning_pass=MemoryPlanningPass())
        made = edge.to_executorch(config)
        (folder / "upstream.pte").write_bytes(made.buffer)
        return folder / "upstream.pte"

    took, path = record.clock(lower)
    program = Runtime.get().load_program(path)
    loaded = {name: program.load_method(name) for name in ("prefill", "decode")}
    prompt, token = torch.arange(PROMPT)[None], torch.tensor([[7]])
    start, wanted = torch.tensor([0]), model(input_ids=prompt).logits[:, -1]
    rivals.agree("prefill", loaded["prefill"].execute([prompt, start])[0], wanted, tolerance)
    for at in range(PROMPT):
        (found,) = loaded["decode"].execute([prompt[:, at : at + 1], torch.tensor([at])])
    rivals.agree("decode", found, wanted, tolerance)
    return Side(
        took,
        path.stat().st_size,
        lambda: loaded["prefill"].execute([prompt, start]),
        lambda at: loaded["decode"].execute([token, torch.tensor([at])]),
    )


def by_transformers(model: Any, folder: Path, tolerance: float) -> Side:
    """Export it with transformers' exporter, which writes a file for each method."""
    ids = torch.arange(PROMPT)[None]
    took, programs = record.clock(lambda: rivals.by_exporter(model, ids, LENGTH))
    size = rivals.saved(programs, folder)
    rivals.check(programs, model, ids, tolerance)
    (prefill, prompt), (decode, token) = (programs[name] for name in ("prefill", "decode"))
    return Side(took, size, lambda: prefill(**prompt), lambda _: decode(**token))


def by_eager(model: Any) -> Side:
    """Run it in PyTorch, with a cache that grows."""
    cache = DynamicCache()
    prompt, token = torch.arange(PROMPT)[None], torch.tensor([[7]])

    def decode(_: int) -> Any:
        return model(input_ids=token, past_key_values=cache, logits_to_keep=1)

    def prefill() -> Any:
        nonlocal cache
        cache = DynamicCache()
        return model(input_ids=prompt, past_key_values=cache, logits_to_keep=1)

    return Side(record.Took(0, 0), 0, prefill, decode)


@torch.no_grad()
def speeds(sides: dict[str, Side]) -> dict[str, tuple[float, float]]:
    """Return the tokens per second of prompts and of single tokens, the sides in turn."""
    prompts: dict[str, list[float]] = {name: [] for name in sides}
    tokens: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS + 1):
        for name, side in sides.items():
            prompts[name].append(_seconds(side.prefill))
            tokens[name] += [_seconds(lambda at=at, s=side: s.decode(at)) for at in _places()]
    return {
        name: (PROMPT / min(prompts[name][1:]), 1 / median(tokens[name][STEPS:])) for name in sides
    }


def _places() -> Sequence[int]:
    return range(PROMPT, PROMPT + STEPS)


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measured(options: Any, quantize: str) -> tuple[dict[str, Any], list[record.Bar]]:
    """Measure all sides with one quantisation, and return the numbers and bars."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", vocab_size=options.vocabulary, hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3 // 32 * 32, num_hidden_layers=options.layers,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    parameters = model.num_parameters()
    if quantize != "none":
        from etdev_llm.quantisation import quantise

        quantise(model, quantize, "none")
    makers = {
        "etdev": by_etdev, "executorch": by_executorch, "transformers": by_transformers
    }  # fmt: skip
    sides, failed = dict[str, Side](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sides:
            try:
                sides[name] = makers[name](model, Path(folder), tolerance_of(model, quantize))
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"[:200]
        sides["eager"] = by_eager(model)
        rates = speeds(sides)
    return _report(quantize, parameters, sides, rates, failed)


def main() -> None:
    """Measure with each quantisation, print the ratios, keep them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--quantize", nargs="*", default=["none", "8da4w"])
    parser.add_argument("--sides", nargs="*", default=["etdev", "executorch", "transformers"])
    options = parser.parse_args()
    record.quiet()
    runs, bars, load = [], list[record.Bar](), os.getloadavg()[0]
    for quantize in options.quantize:
        run, own = measured(options, quantize)
        runs.append(run)
        bars += own
    state = {"before": load, "after": os.getloadavg()[0]}
    record.save("llm", {"options": vars(options), "load": state, "runs": runs}, bars)
    record.show("llm", bars)


def _report(
    quantize: str, parameters: int, sides: dict[str, Side], rates: Any, failed: dict[str, str]
) -> tuple[dict[str, Any], list[record.Bar]]:
    rows = [
        {
            "side": name,
            "lowering_cpu_s": side.took.cpu_s,
            "bytes": side.size,
            "prefill_per_s": rates[name][0],
            "decode_per_s": rates[name][1],
        }
        for name, side in sides.items()
    ]
    ours, bars = sides["etdev"], []
    if theirs := sides.get("transformers"):
        ratio = ours.size / theirs.size
        bars.append(record.Bar(f"{quantize}: bytes, etdev / transformers", ratio, MOST_BYTES))
    if theirs := sides.get("executorch"):
        ratio = ours.took.cpu_s / theirs.took.cpu_s
        bars.append(record.Bar(f"{quantize}: lowering, etdev / ExecuTorch", ratio, MOST_TIME))
    best = [name for name in ("executorch", "transformers") if name in sides]
    for index, what in enumerate(("prefill", "decode") if best else ()):
        ratio = rates["etdev"][index] / max(rates[name][index] for name in best)
        bars.append(record.Bar(f"{quantize}: {what}, etdev / best .pte", ratio, LEAST_SPEED, True))
    record.table(
        f"a decoder, {quantize}: processor seconds of lowering, bytes, tokens per second",
        ["side", "lowering", "bytes", "prefill", "decode"],
        [[r["side"], f"{r['lowering_cpu_s']:.1f}", r["bytes"], f"{r['prefill_per_s']:.0f}",
          f"{r['decode_per_s']:.0f}"] for r in rows],
    )  # fmt: skip
    for name, why in failed.items():
        record.console.print(f"{name} fails: {why}")
    run = {"quantize": quantize, "parameters": parameters, "sides": rows, "failed": failed}
    return run, bars


if __name__ == "__main__":
    main()
