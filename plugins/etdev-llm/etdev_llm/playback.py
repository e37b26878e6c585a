"""Generation with a .pte, and its comparison with eager PyTorch, step by step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from etdev.errors import RunError, VerifyError, first_line
from etdev.pte.artifact import Artifact
from etdev.pte.read import read
from etdev.runtime.child import LIMIT_S
from etdev.runtime.runners import Runner
from etdev.runtime.worker import Program
from etdev_llm.methods import DECODE, PREFILL, SINGLE

TOLERANCE = 1e-4


@frozen
class Step:
    """A call: its method and tokens, the position of the first token, logits, and its time."""

    method: str
    tokens: tuple[int, ...]
    start: int
    logits: torch.Tensor
    seconds: float

    @property
    def next(self) -> int:
        """The most likely token."""
        return int(self.logits.argmax())


@define(eq=False)
class Player:
    """A program of `etdev llm`, loaded in this process.

    Args:
        path: The .pte.

    Raises:
        RunError: It is not one that `etdev llm` wrote, or can't be loaded.
    """

    path: Path
    artifact: Artifact = field(init=False)
    length: int = field(init=False)
    vocabulary: int = field(init=False)
    _program: Any = field(init=False)
    _methods: dict[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.artifact = read(self.path)
        names = {method.name for method in self.artifact.methods}
        if not ({PREFILL, DECODE} <= names or SINGLE in names) or "get_max_seq_len" not in names:
            what = "has no methods prefill and decode with a cache"
            raise RunError(str(self.path), what, "write it with etdev llm")
        self._program = program_of(self.path, self.artifact).load()
        self.length = int(self._call("get_max_seq_len")[0])
        self.vocabulary = int(self._call("get_vocab_size")[0])

    def generate(
        self, tokens: Sequence[int], count: int, told: Callable[[int], object] = lambda _: None
    ) -> list[Step]:
        """Generate `count` tokens behind a prompt, each the most likely one.

        Args:
            tokens: The prompt.
            count: Tokens to generate.
            told: Called with each token when it is known.

        Raises:
            RunError: The cache is too short for it, or a call failed.
        """
        self.refuse_too_long(len(tokens), count)
        known, steps, done = list(tokens), list[Step](), 0
        for _ in range(count):
            new = known[done:]
            steps.append(self._step(new, done, bool(done)))
            done = len(known)
            known.append(steps[-1].next)
            told(known[-1])
        return steps

    def refuse_too_long(self, prompt: int, count: int) -> None:
        """Refuse a generation that the cache has no rows for; its last token needs none."""
        if not prompt:
            raise RunError("prompt", "is empty", "give one token or more")
        if prompt + count - 1 > self.length:
            what = f"has {self.length} positions, and {prompt} tokens with {count} more need "
            most = max(0, self.length - prompt + 1)
            cure = f"generate at most {most}, or lower it with a larger --max-length"
            raise RunError(str(self.path), f"{what}{prompt + count - 1}", cure)

    def _step(self, tokens: Sequence[int], start: int, decodes: bool) -> Step:
        names = {method.name for method in self.artifact.methods}
        method = SINGLE if SINGLE in names else DECODE if decodes else PREFILL
        inputs = inputs_of(tokens, start)
        if method not in self._methods:
            self._call(method, load=True)
        begin = time.perf_counter()
        (logits,) = self._call(method, inputs)
        seconds = time.perf_counter() - begin
        return Step(method, tuple(tokens), start, logits, seconds)

    def _call(self, method: str, inputs: Sequence[Any] = (), load: bool = False) -> Sequence[Any]:
        try:
            # ExecuTorch writes its logs to sys.stderr; they belong with the output of C++.
            with redirect_stderr(sys.__stderr__ or sys.stderr):
                if method not in self._methods:
                    self._methods[method] = self._program.load_method(method)
                return () if load else self._methods[method].execute(inputs)
        except Exception as error:
            what = f"{method} failed: {first_line(error)}"
            raise RunError(str(self.path), what, "see etdev check, and etdev run") from error


def program_of(path: Path, artifact: Artifact) -> Program:
    """Return a program for any runner."""
    return evolve(Program.of(path, artifact.methods), share_arenas=True)


def inputs_of(tokens: Sequence[int], start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs of a call."""
    return torch.tensor([list(tokens)]), torch.tensor([start])


def replayed(path: Path, steps: Sequence[Step], runner: Runner) -> list[Step]:
    """Repeat calls in another runtime, all in one loaded program, and return what they gave.

    Raises:
        RunError: The runtime fails.
    """
    artifact = read(path)
    calls = [(step.method, inputs_of(step.tokens, step.start)) for step in steps]
    outcome = runner.call(program_of(path, artifact), calls, 1, LIMIT_S)
    if outcome.failure:
        raise RunError(str(path), f"{runner.name} failed: {outcome.failure}", "see etdev check")
    return [
        Step(step.method, step.tokens, step.start, result.outputs[0], result.median_ms / 1000)
        for step, result in zip(steps, outcome.values, strict=True)
    ]


@torch.no_grad()
def compare(
    model: Any, steps: Sequence[Step], who: str, tolerance: float = TOLERANCE
) -> list[float]:
    """Compare each step with eager PyTorch, which has no cache and sees the whole sequence.

    What a step's logits need of earlier tokens, it has from the cache, so that they differ if the
    cache does.

    Returns:
        The error of each step's logits, relative to their largest value.

    Raises:
        VerifyError: Logits differ by more than the tolerance, or another token is most likely.
    """
    known: list[int] = []
    errors = []
    for number, step in enumerate(steps):
        known = [*known[: step.start], *step.tokens]
        wanted = model(input_ids=torch.tensor([known])).logits[:, -1].float()
        found = step.logits.float()
        if found.shape != wanted.shape or not bool(found.isfinite().all()):
            what = f"step {number} returned {tuple(found.shape)}, or values that are not finite"
            raise VerifyError(who, what, "report it with the model's config")
        error = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
        if error > tolerance:
            what = f"step {number} ({step.method}) has logits that differ by {error:.1e}"
            raise VerifyError(who, what, f"find the delegate with --plugin, or accept {error:.0e}")
        if step.next != int(wanted.argmax()):
            what = f"step {number} gave token {step.next} instead of {int(wanted.argmax())}"
            raise VerifyError(who, what, "its logits agree, and two of them are nearly equal")
        errors.append(error)
    if not errors:
        raise VerifyError(who, "no step was compared", "generate one token or more")
    return errors
