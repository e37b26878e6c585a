"""A decoder by etdev, by ExecuTorch's own path and by transformers' exporter: size, time, speed.

PYTHONPATH=tests python -m benchmarks.llm [--hidden 1024 --layers 20 --vocabulary 32000]
    [--quantize 8da4w] [--results FILE]

Each side lowers in a process of its own. The files are then run in turn in one process with one
thread, with prompts and caches of the same length. ExecuTorch's path is given etdev's two methods,
with a cache for each, since it can't share one. A side whose logits are not those of PyTorch fails,
and nothing is compared with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attrs import define, frozen
from benchmarks import record
from decoders import rivals
from etdev_llm import generation
from etdev_llm.comparison import tolerance_of
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
from executorch.runtime import Runtime
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.exporters.base import ExportedModel

from etdev import Lowerer

RESULTS = Path(__file__).parent / "results/llm.json"
# Of the two files of transformers.exporters, of ExecuTorch's lowering time and peak, and of the
# tokens per second of the best .pte.
MOST_BYTES, MOST_TIME, MOST_MEMORY, LEAST_SPEED = 0.55, 0.45, 1.0, 0.97
LENGTH, PROMPT, STEPS, ROUNDS = 128, 64, 16, 5
METHODS = ("prefill", "decode")


@frozen
class Calls:
    """The calls of a decoder: one computes a prompt, the other a token at a position."""

    prefill: Callable[[], Any]
    decode: Callable[[int], Any]


def model_of(options: Any, quantize: str) -> Any:
    """Return the decoder with random weights, the same in each process."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", vocab_size=options.vocabulary, hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3 // 32 * 32, num_hidden_layers=options.layers,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    if quantize != "none":
        from etdev_llm.quantisation import quantise

        quantise(model, quantize, "none")
    return model


def by_etdev(model: Any, folder: Path) -> None:
    """Lower it with etdev."""
    made = generation(model, LENGTH)
    lowered = Lowerer(["cpu"], cache=False).lower(made.methods, settings=made.settings)
    lowered.save(folder / "etdev.pte")


@torch.no_grad()
def by_executorch(model: Any, folder: Path) -> None:
    """Lower the same methods with ExecuTorch's own conversion."""
    methods, programs = generation(model, LENGTH).methods, {}
    for name in METHODS:
        module, inputs, *sizes = methods[name]
        shapes = sizes[0] if sizes else None
        programs[name] = torch.export.export(module, inputs, dynamic_shapes=shapes)
    edge = to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["cache"])])
    with (folder / "executorch.pte").open("wb") as file:
        edge.to_executorch(config).write_to_file(file)


def by_transformers(model: Any, folder: Path) -> None:
    """Export it with transformers' exporter, which writes a file for each method."""
    programs = rivals.by_exporter(model, torch.arange(PROMPT)[None], LENGTH)
    rivals.saved(programs, folder)
    torch.save({name: own for name, (_, own) in programs.items()}, folder / "inputs.pt")


MAKERS = {"etdev": by_etdev, "executorch": by_executorch, "transformers": by_transformers}


def make(side: str, options: Any, quantize: str) -> dict[str, Any]:
    """Lower in this process; return processor seconds, and peak memory from the model on."""
    model = model_of(options, quantize)
    record.forget_peak()
    took, _ = record.clock(lambda: MAKERS[side](model, options.make))
    return {"lowering_cpu_s": took.cpu_s, "lowering_s": took.wall_s, "peak_mb": record.peak_mb()}


def make_apart(side: str, options: Any, quantize: str, folder: Path) -> dict[str, Any]:
    """Lower in a process of its own."""
    numbers = ("hidden", "layers", "vocabulary")
    words = [f"--{name}={getattr(options, name)}" for name in numbers]
    command = [sys.executable, "-m", "benchmarks.llm", *words, "--make", str(folder)]
    command += ["--sides", side, "--quantize", quantize]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    files = [path for path in folder.rglob("*.pte") if path.relative_to(folder).parts[0] in
             (f"{side}.pte", *(METHODS if side == "transformers" else ()))]  # fmt: skip
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"side": side, **made, "bytes": sum(file.stat().st_size for file in files)}


@torch.no_grad()
def loaded(path: Path, model: Any, tolerance: float) -> Calls:
    """Load a file with both methods, and compare logits of each."""
    program = Runtime.get().load_program(path)
    prefill, decode = (program.load_method(name) for name in METHODS)
    prompt, token, start = torch.arange(PROMPT)[None], torch.tensor([[7]]), torch.tensor([0])
    wanted = model(input_ids=prompt).logits[:, -1]
    rivals.agree("prefill", prefill.execute([prompt, start])[0], wanted, tolerance)
    for at in range(PROMPT):
        (found,) = decode.execute([prompt[:, at : at + 1], torch.tensor([at])])
    rivals.agree("decode", found, wanted, tolerance)
    return Calls(
        lambda: prefill.execute([prompt, start]),
        lambda at: decode.execute([token, torch.tensor([at])]),
    )


@define
class Recorder:
    """A method of transformers' runner that remembers its flat inputs."""

    method: Any
    inputs: Sequence[Any] = ()

    def execute(self, inputs: Sequence[Any]) -> Any:
        """Run the method."""
        self.inputs = inputs
        return self.method.execute(inputs)


def loaded_pair(folder: Path, model: Any, tolerance: float) -> Calls:
    """Load the files of transformers' exporter, and compare logits of each."""
    inputs = torch.load(folder / "inputs.pt", weights_only=False)
    programs = {name: ExportedModel.from_pretrained(folder / name) for name in METHODS}
    recorders = {}
    for name, program in programs.items():
        (runner,) = program.runners.values()
        runner.method = recorders[name] = Recorder(runner.method)
    pairs = {name: (programs[name], inputs[name]) for name in METHODS}
    rivals.check(pairs, model, torch.arange(PROMPT)[None], tolerance)
    prefill, decode = (recorders[name] for name in METHODS)
    return Calls(
        lambda: prefill.method.execute(prefill.inputs),
        lambda _: decode.method.execute(decode.inputs),
    )


def eager(model: Any) -> Calls:
    """Run it in PyTorch, with a cache that grows."""
    cache = DynamicCache()
    prompt, token = torch.arange(PROMPT)[None], torch.tensor([[7]])

    def decode(_: int) -> Any:
        return model(input_ids=token, past_key_values=cache, logits_to_keep=1)

    def prefill() -> Any:
        nonlocal cache
        cache = DynamicCache()
        return model(input_ids=prompt, past_key_values=cache, logits_to_keep=1)

    return Calls(prefill, decode)


@torch.no_grad()
def speeds(sides: Mapping[str, Calls]) -> dict[str, tuple[float, float]]:
    """Return the tokens per second of prompts and of single tokens, the sides in turn."""
    prompts: dict[str, list[float]] = {name: [] for name in sides}
    tokens: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS + 1):
        for name, side in sides.items():
            prompts[name].append(_seconds(side.prefill))
            places = range(PROMPT, PROMPT + STEPS)
            tokens[name] += [_seconds(lambda at=at, s=side: s.decode(at)) for at in places]
    return {
        name: (PROMPT / min(prompts[name][1:]), 1 / median(tokens[name][STEPS:])) for name in sides
    }


def _seconds(call: Callable[[], Any]) -> float:
    """Return processor seconds: with one thread those by the clock, but for other processes."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measured(options: Any, quantize: str) -> tuple[dict[str, Any], list[record.Bar]]:
    """Measure all sides with one quantisation, and return the numbers and bars."""
    rows, failed, calls = dict[str, dict[str, Any]](), dict[str, str](), dict[str, Calls]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in options.sides:
            try:
                rows[side] = make_apart(side, options, quantize, folder)
            except subprocess.CalledProcessError as error:
                failed[side] = f"lowering: {error.stderr.strip().splitlines()[-1]}"[:200]
        model = model_of(options, quantize)
        for side in rows:
            try:
                known = model, tolerance_of(model, quantize)
                pair = side == "transformers"
                calls[side] = (
                    loaded_pair(folder, *known) if pair else loaded(folder / f"{side}.pte", *known)
                )
            except Exception as error:
                failed[side] = f"{type(error).__name__}: {error}"[:200]
        calls["eager"] = eager(model)
        rates = speeds(calls)
    rows = {side: {**rows.get(side, {"side": side}), "prefill_per_s": rates[side][0],
                   "decode_per_s": rates[side][1]} for side in calls}  # fmt: skip
    _show(quantize, rows, failed)
    run = {"quantize": quantize, "parameters": model.num_parameters()}
    return {**run, "sides": list(rows.values()), "failed": failed}, _bars(quantize, rows)


def _bars(quantize: str, rows: Mapping[str, Mapping[str, Any]]) -> list[record.Bar]:
    def ratio(key: str, other: str) -> float:
        return float(rows["etdev"][key] / rows[other][key])

    bars, best = [], [name for name in ("executorch", "transformers") if name in rows]
    if "etdev" not in rows:
        return []
    if "transformers" in rows:
        what = f"{quantize}: bytes, etdev / transformers"
        bars.append(record.Bar(what, ratio("bytes", "transformers"), MOST_BYTES))
    if "executorch" in rows:
        for key, most in (("lowering_cpu_s", MOST_TIME), ("peak_mb", MOST_MEMORY)):
            what = f"{quantize}: {key}, etdev / ExecuTorch"
            bars.append(record.Bar(what, ratio(key, "executorch"), most))
    for key in ("prefill_per_s", "decode_per_s") if best else ():
        what = f"{quantize}: {key}, etdev / best .pte"
        bars.append(record.Bar(what, min(ratio(key, name) for name in best), LEAST_SPEED, True))
    return bars


def _show(quantize: str, rows: Mapping[str, Mapping[str, Any]], failed: Mapping[str, str]) -> None:
    keys = ("lowering_cpu_s", "peak_mb", "bytes", "prefill_per_s", "decode_per_s")
    cells = [[name, *(f"{row[key]:.4g}" if key in row else "-" for key in keys)]
             for name, row in rows.items()]  # fmt: skip
    record.table(f"a decoder, {quantize}", ["side", *keys], cells)
    for name, why in failed.items():
        record.console.print(f"{name} fails: {why}")


def main() -> None:
    """Measure with each quantisation, print the ratios, keep them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--quantize", nargs="*", default=["none", "8da4w"])
    parser.add_argument("--sides", nargs="*", default=list(MAKERS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--make", type=Path, help="only lower, to this folder")
    options = parser.parse_args()
    record.quiet()
    _unsafe_reset_threadpool(1)
    if options.make:
        print(json.dumps(make(options.sides[0], options, options.quantize[0])))
        return
    runs, bars, load = [], list[record.Bar](), os.getloadavg()[0]
    for quantize in options.quantize:
        run, own = measured(options, quantize)
        runs.append(run)
        bars += own
    state = {"before": load, "after": os.getloadavg()[0]}
    sizes = {name: getattr(options, name) for name in ("hidden", "layers", "vocabulary")}
    data = {"options": {**sizes, "length": LENGTH, "prompt": PROMPT}, "load": state, "runs": runs}
    record.save("llm", data, bars)
    options.results.write_text((record.FOLDER / "llm.json").read_text())
    record.show("llm", bars)


if __name__ == "__main__":
    main()
