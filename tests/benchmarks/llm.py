"""A decoder by etdev, by ExecuTorch's own path and by transformers' exporter: size, time, speed.

PYTHONPATH=tests python -m benchmarks.llm [--hidden 1024 --layers 20 --vocabulary 32000]
    [--quantize none 8da4w] [--sides etdev executorch transformers tuned] [--results FILE]

Each side lowers in a process of its own, and then runs in another one, with one thread. These
processes take turns: a prompt and some tokens each. Prompts and caches have the same length.
ExecuTorch's path is given etdev's two methods, with a cache for each, since it can't share one.
A side whose logits are not those of PyTorch fails, and nothing is compared with it. `tuned` is
etdev's decoder after `etdev.tune` with weights of 1 and 128. The results are written after each
side, so that a run that is stopped leaves those that it has.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
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
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.exporters.base import ExportedModel

import etdev
from etdev import Lowerer

RESULTS = Path(__file__).parent / "results/llm.json"
# Of the two files of transformers.exporters, of ExecuTorch's lowering time and peak, and of the
# tokens per second of the best .pte.
MOST_BYTES, MOST_TIME, MOST_MEMORY, LEAST_SPEED = 0.55, 0.45, 1.0, 0.97
# Of the time that the untuned file takes for a prompt and 128 tokens; the rest is noise.
MOST_TUNED = 1.03
LENGTH, PROMPT, STEPS, ROUNDS = 128, 64, 16, 5
METHODS = ("prefill", "decode")
WEIGHTS = {"prefill": 1, "decode": 128}
EAGER, TUNED = "eager", "tuned"
# Begins an answer of a process that runs a side; backends print other lines.
MARK = "@"


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


def by_tuning(model: Any, folder: Path, budget_s: float) -> dict[str, Any]:
    """Tune the same methods over XNNPACK and OpenVINO; return the verdict and the candidates."""
    prompt, start = torch.arange(PROMPT)[None], torch.tensor([PROMPT])
    calls = {"prefill": [(prompt, start - PROMPT)], "decode": [(prompt[:, -1:], start)]}
    methods = generation(model, LENGTH).methods
    report = etdev.tune(
        {name: methods[name] for name in METHODS}, path=folder / "tuned.pte", measured_on=calls,
        weights=WEIGHTS, plugins=["cpu", "openvino"], budget_s=budget_s, store=False,
        cache=folder / "cache",
    ).report  # fmt: skip
    rows = {
        trial.name: f"{trial.against_untuned} times untuned, {trial.detail}"
        for trial in report.trials
    }
    return {"verdict": report.verdict, "finished": report.finished, "candidates": rows}


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
SIDES = (*MAKERS, TUNED)


def make(side: str, options: Any, quantize: str) -> dict[str, Any]:
    """Lower in this process; return processor seconds, and peak memory from the model on."""
    model = model_of(options, quantize)
    record.forget_peak()
    maker = partial(by_tuning, budget_s=options.budget) if side == TUNED else MAKERS[side]
    took, said = record.clock(lambda: maker(model, options.make))
    made = {"lowering_cpu_s": took.cpu_s, "lowering_s": took.wall_s, "peak_mb": record.peak_mb()}
    return {**made, **(said or {})}


def _command(side: str, options: Any, quantize: str, job: str, folder: Path) -> list[str]:
    """Return the command that does a job for a side in a process of its own."""
    names = ("hidden", "layers", "vocabulary", "budget")
    words = [f"--{name}={getattr(options, name)}" for name in names]
    command = [sys.executable, "-m", "benchmarks.llm", *words, f"--{job}", str(folder)]
    return [*command, "--sides", side, "--quantize", quantize]


def make_apart(side: str, options: Any, quantize: str, folder: Path) -> dict[str, Any]:
    """Lower in a process of its own.

    Raises:
        RuntimeError: It fails, or takes longer than the limit.
    """
    command = _command(side, options, quantize, "make", folder)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"takes more than {options.limit} s") from error
    if done.returncode:
        raise RuntimeError(_reason(done.stderr, done.returncode))
    files = [path for path in folder.rglob("*.pte") if path.relative_to(folder).parts[0] in
             (f"{side}.pte", *(METHODS if side == "transformers" else ()))]  # fmt: skip
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"side": side, **made, "bytes": sum(file.stat().st_size for file in files)}


def _reason(text: str, code: int) -> str:
    """Return the last line of an error, or the code of a process that was killed."""
    lines = text.strip().splitlines()
    return f"ended with {code}" if code < 0 or not lines else lines[-1][:200]


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


def play(side: str, options: Any, quantize: str) -> None:
    """Load in this process, and do a round for each line of the input, with an answer each."""
    model = model_of(options, quantize)
    calls = calls_of(side, model, quantize, options.run)
    # The eager side has it; the others need its memory no more.
    del model
    gc.collect()
    print(MARK, json.dumps({"error": calls.error}), flush=True)
    for _ in sys.stdin:
        with torch.no_grad():
            places = range(PROMPT, PROMPT + STEPS)
            prompt = _seconds(calls.prefill)
            tokens = [_seconds(lambda at=at: calls.decode(at)) for at in places]
        print(MARK, json.dumps({"prompt": prompt, "tokens": tokens}), flush=True)


def _seconds(call: Callable[[], Any]) -> float:
    """Return processor seconds: with one thread those by the clock, but for other processes."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


@define
class Player:
    """A process that plays rounds of a side when it is asked to."""

    side: str
    process: subprocess.Popen[str]
    errors: Path
    limit_s: float
    prompts: list[float] = field(factory=list)
    tokens: list[float] = field(factory=list)

    @classmethod
    def of(cls, side: str, options: Any, quantize: str, folder: Path) -> Player:
        """Start one."""
        errors = folder / f"{side}.log"
        with errors.open("w") as log:
            process = subprocess.Popen(
                _command(side, options, quantize, "run", folder),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        return cls(side, process, errors, options.limit)

    def answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            RuntimeError: The process has ended, or was ended as it took too long.
        """
        assert self.process.stdout
        timer = threading.Timer(self.limit_s, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(MARK):
                    answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                    return answer
        finally:
            timer.cancel()
        raise RuntimeError(_reason(self.errors.read_text(), self.process.wait()))

    def round(self) -> None:
        """Play a round; the first one warms up."""
        assert self.process.stdin
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.prompts.append(answer["prompt"])
        self.tokens += answer["tokens"]

    def speeds(self) -> dict[str, float]:
        """Return the tokens per second of prompts and of single tokens."""
        fastest, usual = min(self.prompts[1:]), median(self.tokens[STEPS:])
        return {"prefill_per_s": PROMPT / fastest, "decode_per_s": 1 / usual}

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


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
                player.end()

    def _make(self, side: str) -> None:
        self.rows[side] = make_apart(side, self.options, self.quantize, self.folder)

    def _load(self, side: str, players: dict[str, Player]) -> None:
        players[side] = Player.of(side, self.options, self.quantize, self.folder)
        row = self.rows.setdefault(side, {"side": side})
        row["error"] = players[side].answer()["error"]

    def _try(self, side: str, what: str, job: Callable[[], None], told: bool = True) -> None:
        """Do a job; a failure is kept as a result."""
        begin = time.perf_counter()
        try:
            job()
        except (RuntimeError, OSError) as error:
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
    if "decode_per_s" in rows.get(TUNED, {}):
        value = _use(rows[TUNED]) / _use(rows["etdev"])
        what = f"{quantize}: a prompt and {WEIGHTS['decode']} tokens, tuned / untuned"
        bars.append(record.Bar(what, value, MOST_TUNED))
    return bars


def _use(row: Mapping[str, Any]) -> float:
    """Return the seconds of a prompt and the tokens behind it."""
    return float(PROMPT / row["prefill_per_s"] + WEIGHTS["decode"] / row["decode_per_s"])


def _show(quantize: str, rows: Mapping[str, Mapping[str, Any]], failed: Mapping[str, str]) -> None:
    keys = ("lowering_cpu_s", "peak_mb", "bytes", "error", "prefill_per_s", "decode_per_s")
    cells = [[name, *(f"{row[key]:.4g}" if key in row else "-" for key in keys)]
             for name, row in rows.items()]  # fmt: skip
    record.table(f"a decoder, {quantize}", ["side", *keys], cells)
    for name, row in rows.items():
        if "verdict" in row:
            record.console.print(f"{name}: {row['verdict']}")
    for name, why in failed.items():
        record.console.print(f"{name} fails: {why}")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--quantize", nargs="*", default=["none", "8da4w"])
    parser.add_argument("--sides", nargs="*", default=list(MAKERS), choices=(*SIDES, EAGER))
    parser.add_argument("--limit", type=float, default=1200, help="seconds for lowering or loading")
    parser.add_argument("--budget", type=float, default=240, help="seconds for tuning")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--make", type=Path, help="only lower, to this folder")
    parser.add_argument("--run", type=Path, help="only run what is in this folder")
    return parser.parse_args()


def main() -> None:
    """Measure with each quantisation, print the ratios, keep them as JSON."""
    options = _parsed()
    record.quiet()
    _unsafe_reset_threadpool(1)
    if options.make:
        print(json.dumps(make(options.sides[0], options, options.quantize[0])))
        return
    if options.run:
        play(options.sides[0], options, options.quantize[0])
        return
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
            _show(quantize, run.compared, run.failed)
    record.show(name, bars())


if __name__ == "__main__":
    main()
