"""Models on other processors: each is lowered once, and called here and in an emulator of each."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen
from etdev_cpp.runner import RUNNER, CppRunner
from etdev_llm import generation
from etdev_llm.comparison import Comparison, all_calls, replayed, tolerance_of
from etdev_llm.quantisation import quantise
from etdev_llm.sources import Recipe
from support.decoders import LENGTH, decoder
from support.emulator import PI
from support.models import matrix, nets, precisions
from support.processes import DiedError, FailedError

from etdev import Lowerer
from etdev.errors import RunError, VerifyError
from etdev.pte.read import read
from etdev.runtime.run import run_series
from etdev.schema.target import Target
from survey import cells
from survey.judge import Subject, Verdict, judged, lowered
from survey.table import HERE

# Without newer instructions, with those for dot products and half precision, and with SVE.
PROCESSORS = ("cortex-a53", "cortex-a76", "neoverse-v1")
ORDERS = (HERE, *PROCESSORS)
PLUGINS = ["cpu"]
_EMULATOR = f"qemu-{PI.processor}"
# One of so many models of the zoo.
_SLICE = 3
# A value may fall to the other side of a step, and the layers behind it follow.
_INT8 = 2e-2


@frozen(eq=False)
class Decoder:
    """A decoder of transformers, as `etdev llm` lowers it."""

    kind: str
    recipe: Recipe = field(factory=Recipe)

    def verdict(self, runner: CppRunner) -> Verdict:
        """Repeat generations of eager PyTorch, with its cache, as `etdev generate --check` does."""
        with tempfile.TemporaryDirectory() as folder:
            model, program = _decoder(self)
            path, wanted = Path(folder) / "net.pte", all_calls(model, LENGTH)
            path.write_bytes(program)
            done = Comparison("net.pte", tolerance_of(model, self.recipe))
            try:
                found, kept = replayed(path, wanted, runner)
                done.compare(found, wanted)
                done.compare_cache(model, wanted, kept)
            except RunError as error:
                return Verdict("failed", str(error))
            except VerifyError as error:
                return Verdict("wrong", str(error))
        return Verdict("right", error=max(done.errors))


@lru_cache(maxsize=1)
def _decoder(subject: Decoder) -> tuple[Any, bytes]:
    recipe = subject.recipe
    # In layers that groups of 32 weights divide.
    model = decoder(subject.kind, hidden_size=64, intermediate_size=96)
    quantise(model, recipe.quantize, recipe.quantize_embedding)
    made = generation(model, LENGTH, False, recipe)
    program = Lowerer(PLUGINS).lower(made.methods, settings=made.settings)
    return model, program.to_executorch().buffer


Models = Mapping[str, Callable[[], Subject | Decoder]]


def _matrix() -> Models:
    """Return the methods of the matrix' models."""

    def subject(make: Callable[[], matrix.Case], method: str) -> Subject:
        case = make()
        calls = [inputs for name, inputs in case.calls if name == method]
        return Subject(case.programs[method], calls, tolerance=case.tolerance)

    known = {**matrix.SMALL, **matrix.LARGE}
    methods = {"two_methods": ("encode", "score")}
    return {
        name if method == "forward" else f"{name}.{method}": partial(subject, make, method)
        for name, make in known.items()
        for method in methods.get(name, ("forward",))
    }


def _precisions() -> Models:
    """Return nets in static int8, in float16, and in torchao's kinds of few bits."""

    def int8(make: Callable[[], nets.Model]) -> Subject:
        module, inputs = precisions.static_int8(*make())
        return Subject(module, [inputs], tolerance=_INT8)

    def island(*left_out: str) -> Subject:
        module, inputs = precisions.island(*left_out)
        return Subject(module, [inputs], tolerance=_INT8)

    def half(make: Callable[[], nets.Model]) -> Subject:
        module, inputs = make()
        return Subject(module.half(), [tuple(value.half() for value in inputs)])

    def words() -> Subject:
        module, inputs = precisions.words()
        return Subject(module, [inputs], tolerance=5e-3)

    floats = {"mlp": nets.mlp, "conv_net": nets.conv_net, "resnet18": nets.resnet18}
    halves = {**floats, "gru": nets.gru, "block": _block}
    return {
        **{f"int8.{name}": partial(int8, make) for name, make in floats.items()},
        "int8.island": island,
        "int8.island_with_a_float_sum": partial(island, "add"),
        **{f"float16.{name}": partial(half, make) for name, make in halves.items()},
        "8da4w.words": words,
        **{name: partial(cells.subject, name) for name in cells.ANIMALS if "quantised." in name},
    }


def _block() -> nets.Model:
    torch.manual_seed(0)
    return matrix.Block().eval(), (torch.randn(2, 6, 32),)


def _decoders() -> Models:
    kinds = ("llama", "gemma3_text", "qwen3", "phi3", "gpt2", "mixtral")
    eight = Recipe(quantize="8da8w", quantize_embedding="8")
    few = {"8da4w": Recipe(quantize="8da4w", quantize_embedding="4"), "8da8w": eight}
    return {
        **{kind: partial(Decoder, kind) for kind in kinds},
        **{f"llama.{name}": partial(Decoder, "llama", recipe) for name, recipe in few.items()},
    }


def _zoo() -> Models:
    return {name: partial(cells.subject, name) for name in [*cells.ANIMALS][::_SLICE]}


PARTS: Mapping[str, Callable[[], Models]] = {
    f"{PI.processor} {name}": make
    for name, make in {
        "matrix": _matrix,
        "precisions": _precisions,
        "decoders": _decoders,
        "zoo": _zoo,
    }.items()
}


# As here, whatever the processor.
EXPECTED = {
    (model, processor): kind
    for (model, order), kind in {**cells.EXPECTED, ("while_loop", "cpu"): "refused"}.items()
    if order == "cpu"
    for processor in ORDERS
}


def verdict(subject: Subject | Decoder, processor: str) -> Verdict:
    """Judge a model on a processor; its program is that of the processor before."""
    runner = _runner(processor)
    if isinstance(subject, Decoder):
        return subject.verdict(runner)
    return judged(subject, _program, partial(_called, runner))


_program = lru_cache(maxsize=1)(lowered(PLUGINS))


@cache
def _runner(processor: str) -> CppRunner:
    """Return a runner whose process calls all models."""
    if processor == HERE:
        return RUNNER
    (runner,) = RUNNER.on_target(Target(PI.triple, f"qemu:{processor}"))
    return runner


def _called(runner: CppRunner, path: str, calls: Sequence[list[Any]]) -> Any:
    (method,) = read(path).methods
    outcome = run_series(Path(path), [(method, inputs) for inputs in calls], runner=runner)
    if outcome.failure is None:
        return [(list(result.outputs), list(result.inputs)) for result in outcome.values]
    if "failed with" in outcome.failure:
        raise FailedError(outcome.failure)
    kind = "hung" if "took longer" in outcome.failure else "crashed"
    raise DiedError(f"{kind}, as {outcome.failure}".replace(",", "", 1))


def found() -> bool:
    """Return True if an emulator is installed."""
    return bool(shutil.which(_EMULATOR))


def known() -> list[str]:
    """Return this machine, and the processors that the emulator has.

    QEMU 7.2 has no Neoverse V1.
    """
    done = subprocess.run([_EMULATOR, "-cpu", "help"], capture_output=True, text=True, check=True)
    return [HERE, *(name for name in PROCESSORS if name in done.stdout.split())]


def emulator() -> str:
    """Return the emulator with its version."""
    done = subprocess.run([_EMULATOR, "--version"], capture_output=True, text=True, check=True)
    return " ".join(done.stdout.split()[:3]).replace("version ", "")
