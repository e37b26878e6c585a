"""A decoder by etdev, by ExecuTorch's own path and by transformers' exporter: size, time, speed.

PYTHONPATH=tests python -m benchmarks.llm [--hidden 1024 --layers 20 --vocabulary 32000]
    [--quantize none 8da4w] [--sides etdev executorch transformers] [--results FILE]

Each side lowers in a process of its own, and then runs in another one, with one thread. These
processes take turns: a prompt and some tokens each. Prompts and caches have the same length.
ExecuTorch's path is given etdev's two methods, with a cache for each, since it can't share one.
A side whose logits are not those of PyTorch fails, and nothing is compared with it. The
results are written after each side, so that a run that is stopped leaves those that it has.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attrs import define, field, frozen
from benchmarks import record
from etdev_llm import generation
from etdev_llm.comparison import tolerance_of
from etdev_llm.sources import Recipe
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
from executorch.runtime import Runtime
from support.decoders import rivals
from support.processes import DiedError, FailedError, Process, apart
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.exporters.base import ExportedModel

from etdev import Lowerer

RESULTS = Path(__file__).parent / "results/llm.json"
# Of the two files of transformers.exporters, of ExecuTorch's lowering time and peak, and of the
# tokens per second of the best .pte.
MOST_BYTES, MOST_TIME, MOST_MEMORY, LEAST_SPEED = 0.55, 0.45, 1.0, 0.97
LENGTH, PROMPT, STEPS, ROUNDS = 128, 64, 16, 5
METHODS = ("prefill", "decode")
EAGER = "eager"


@frozen
class Calls:
    """The calls of a decoder: one computes a prompt, the other a token at a position.

    Args:
        error: The largest error of their logits.
    """

    prefill: Callable[[], Any]
    decode: Callable[[int], Any]
    error: float = 0.0


def config_of(options: Any) -> Any:
    """Return the config of the decoder."""
    return AutoConfig.for_model(
        "llama", vocab_size=options.vocabulary, hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3 // 32 * 32, num_hidden_layers=options.layers,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=LENGTH,
    )  # fmt: skip


def parameters_of(options: Any) -> int:
    """Return the number of parameters, without making them."""
    with torch.device("meta"):
        count: int = AutoModelForCausalLM.from_config(config_of(options)).num_parameters()
    return count


def model_of(options: Any, quantize: str) -> Any:
    """Return the decoder with random weights, the same in each process."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(options)).eval()
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


def make(side: str, options: Any, quantize: str, folder: Path) -> dict[str, Any]:
    """Lower in this process; return its seconds, peak memory from the model on, and bytes."""
    begin()
    model = model_of(options, quantize)
    record.forget_peak()
    took, _ = record.clock(lambda: MAKERS[side](model, folder))
    return {
        "side": side,
        "lowering_cpu_s": took.cpu_s,
        "lowering_s": took.wall_s,
        "peak_mb": record.peak_mb(),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*.pte")),
    }


def begin() -> None:
    """Use one thread, as PyTorch and as ExecuTorch."""
    record.quiet()
    _unsafe_reset_threadpool(1)


@torch.no_grad()
def loaded(path: Path, model: Any, tolerance: float) -> Calls:
    """Load a file with both methods, and compare logits of each."""
    program = Runtime.get().load_program(path)
    prefill, decode = (program.load_method(name) for name in METHODS)
    prompt, token, start = torch.arange(PROMPT)[None], torch.tensor([[7]]), torch.tensor([0])
    wanted = model(input_ids=prompt).logits[:, -1]
    error = rivals.agree("prefill", prefill.execute([prompt, start])[0], wanted, tolerance)
    for at in range(PROMPT):
        (found,) = decode.execute([prompt[:, at : at + 1], torch.tensor([at])])
    error = max(error, rivals.agree("decode", found, wanted, tolerance))
    return Calls(
        lambda: prefill.execute([prompt, start]),
        lambda at: decode.execute([token, torch.tensor([at])]),
        error,
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
    error = rivals.check(pairs, model, torch.arange(PROMPT)[None], tolerance)
    prefill, decode = (recorders[name] for name in METHODS)
    return Calls(
        lambda: prefill.method.execute(prefill.inputs),
        lambda _: decode.method.execute(decode.inputs),
        error,
    )


def in_eager(model: Any) -> Calls:
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


def calls_of(side: str, model: Any, quantize: str, folder: Path) -> Calls:
    """Load what a side made, and compare it with the model."""
    if side == EAGER:
        return in_eager(model)
    tolerance = tolerance_of(model, Recipe(quantize=quantize))
    if side == "transformers":
        return loaded_pair(folder, model, tolerance)
    return loaded(folder / f"{side}.pte", model, tolerance)


_calls: Calls


def load(side: str, options: Any, quantize: str, folder: Path) -> float:
    """Load in this process, which then plays rounds; return the error of the logits."""
    global _calls
    begin()
    # The eager side keeps the model; the others need its memory no more.
    _calls = calls_of(side, model_of(options, quantize), quantize, folder)
    gc.collect()
    return _calls.error


@torch.no_grad()
def play() -> tuple[float, list[float]]:
    """Play a round: return the seconds of the prompt and of some tokens."""
    prompt = _seconds(_calls.prefill)
    return prompt, [_seconds(partial(_calls.decode, at)) for at in range(PROMPT, PROMPT + STEPS)]


def done(job: str, *arguments: Any) -> Any:
    """Do a job of a side, for a process of its own."""
    return {"make": make, "load": load, "play": play}[job](*arguments)


def _seconds(call: Callable[[], Any]) -> float:
    """Return processor seconds: with one thread those by the clock, but for other processes."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


@define
class Player:
    """A process that plays rounds of a side."""

    process: Process
    prompts: list[float] = field(factory=list)
    tokens: list[float] = field(factory=list)

    def round(self) -> None:
        """Play a round; the first one warms up."""
        prompt, tokens = self.process.ask("play")
        self.prompts.append(prompt)
        self.tokens += tokens

    def speeds(self) -> dict[str, float]:
        """Return the tokens per second of prompts and of single tokens."""
        fastest, usual = min(self.prompts[1:]), median(self.tokens[STEPS:])
        return {"prefill_per_s": PROMPT / fastest, "decode_per_s": 1 / usual}


@define
class Run:
    """The sides with one quantisation: the numbers of each, and why the others fail."""

    options: Any
    quantize: str
    folder: Path
    keep: Callable[[Run], None]
    rows: dict[str, dict[str, Any]] = field(factory=dict)
    failed: dict[str, str] = field(factory=dict)

    def measure(self) -> None:
        """Lower with each side, and let all of them run in turn."""
        for side in self.options.sides:
            self._try(side, "lowering", partial(self._make, side))
        players = dict[str, Player]()
        try:
            for side in (*self.rows, EAGER):
                self._try(side, "loading", partial(self._load, side, players))
            for _ in range(ROUNDS + 1):
                for side in [side for side in players if side not in self.failed]:
                    self._try(side, "running", players[side].round, told=False)
            for side, player in players.items():
                if side not in self.failed:
                    self.rows[side] |= player.speeds()
            self.keep(self)
        finally:
            for player in players.values():
                player.process.close()

    def _make(self, side: str) -> None:
        folder = self.folder / side
        folder.mkdir()
        given, limit_s = (side, self.options, self.quantize, folder), self.options.limit
        self.rows[side] = apart("benchmarks.llm:done", "make", *given, timeout_s=limit_s)

    def _load(self, side: str, players: dict[str, Player]) -> None:
        process = Process("benchmarks.llm:done", self.options.limit)
        players[side] = Player(process)
        row = self.rows.setdefault(side, {"side": side})
        row["error"] = process.ask("load", side, self.options, self.quantize, self.folder / side)

    def _try(self, side: str, what: str, job: Callable[[], None], told: bool = True) -> None:
        """Do a job; a failure is kept as a result."""
        begin = time.perf_counter()
        try:
            job()
        except (DiedError, FailedError) as error:
            self.failed[side] = f"{what}: {error}"
        if told:
            seconds = time.perf_counter() - begin
            state = self.failed.get(side, f"{seconds:.0f} s")
            record.console.print(f"{self.quantize}, {side}, {what}: {state}")
            self.keep(self)

    @property
    def compared(self) -> dict[str, dict[str, Any]]:
        """The sides that didn't fail."""
        return {side: row for side, row in self.rows.items() if side not in self.failed}

    def document(self) -> dict[str, Any]:
        """Return the numbers of all sides."""
        return {"quantize": self.quantize, "sides": list(self.rows.values()), "failed": self.failed}


def bars_of(quantize: str, rows: Mapping[str, Mapping[str, Any]]) -> list[record.Bar]:
    """Return the bars whose sides are there."""

    def ratio(key: str, other: str) -> float:
        return float(rows["etdev"][key] / rows[other][key])

    def bar(what: str, key: str, others: Iterable[str], bound: float, least: bool = False) -> None:
        values = [ratio(key, side) for side in others if key in rows.get(side, {})]
        if values and key in rows["etdev"]:
            value = min(values) if least else max(values)
            bars.append(record.Bar(f"{quantize}: {key}, {what}", value, bound, least))

    bars = list[record.Bar]()
    if "etdev" not in rows:
        return bars
    bar("etdev / transformers", "bytes", ["transformers"], MOST_BYTES)
    bar("etdev / ExecuTorch", "lowering_cpu_s", ["executorch"], MOST_TIME)
    bar("etdev / ExecuTorch", "peak_mb", ["executorch"], MOST_MEMORY)
    for key in ("prefill_per_s", "decode_per_s"):
        bar("etdev / best .pte", key, ["executorch", "transformers"], LEAST_SPEED, True)
    return bars


def _show(run: Run) -> None:
    keys = ("lowering_cpu_s", "peak_mb", "bytes", "error", "prefill_per_s", "decode_per_s")
    rows = list(run.compared.values())
    record.columns(f"a decoder, {run.quantize}", rows, ("side", *keys))
    for name, why in run.failed.items():
        record.console.print(f"{name} fails: {why}", markup=False)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--quantize", nargs="*", default=["none", "8da4w"])
    parser.add_argument("--sides", nargs="*", default=list(MAKERS), choices=MAKERS)
    parser.add_argument("--limit", type=float, default=1200, help="seconds for lowering or loading")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> None:
    """Measure with each quantisation, print the ratios, keep them as JSON."""
    options = _parsed()
    runs, load = dict[str, Run](), os.getloadavg()[0]
    sizes = {name: getattr(options, name) for name in ("hidden", "layers", "vocabulary")}
    data = {"options": {**sizes, "length": LENGTH, "prompt": PROMPT}}
    data["options"]["parameters"] = parameters_of(options)
    name = options.results.stem

    def bars() -> list[record.Bar]:
        return [bar for run in runs.values() for bar in bars_of(run.quantize, run.compared)]

    def keep(run: Run) -> None:
        runs[run.quantize] = run
        state = {"before": load, "after": os.getloadavg()[0]}
        documents = [run.document() for run in runs.values()]
        record.save(name, {**data, "load": state, "runs": documents}, bars())
        options.results.write_text((record.FOLDER / f"{name}.json").read_text())

    for quantize in options.quantize:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(options, quantize, Path(folder), keep)
            run.measure()
            _show(run)
    record.show(name, bars())


if __name__ == "__main__":
    main()
