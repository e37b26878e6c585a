"""Generation with a .pte in this process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from etdev.app import ProgramFile
from etdev.errors import RunError, first_line
from etdev.pte.artifact import Artifact
from etdev_llm.encoder_decoder import ENCODE
from etdev_llm.methods import CACHE, DECODE, PREFILL, SINGLE
from etdev_llm.sampling import Sampling
from etdev_llm.sources import RECIPE, Recipe

# A token, or those of all sequences of a batch at one position.
Token = int | tuple[int, ...]


@frozen
class Step:
    """A call: its method and tokens, the position of the first token, logits, and its time.

    `chosen` is the token that it was followed by, None for the most likely one. `more` are other
    inputs: the states of a source for the prefill of an encoder-decoder, or for its `encode` the
    source; that has no tokens, and its `logits` are the states.
    """

    method: str
    tokens: tuple[Token, ...]
    start: int
    logits: torch.Tensor
    seconds: float
    chosen: Token | None = None
    more: tuple[torch.Tensor, ...] = ()

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The inputs of the call."""
        return (*(inputs_of(self.tokens, self.start) if self.tokens else ()), *self.more)

    @property
    def likeliest(self) -> Token:
        """The most likely token."""
        return each(self.logits, lambda row: int(row.argmax()))

    @property
    def next(self) -> Token:
        """The token that follows."""
        return self.likeliest if self.chosen is None else self.chosen


def each(logits: torch.Tensor, choose: Callable[[torch.Tensor], int]) -> Token:
    """Return the token that is chosen from logits (batch, vocabulary), a tuple for a batch."""
    return tuple(map(choose, logits)) if len(logits) > 1 else choose(logits)


@define(eq=False)
class Player:
    """A program of `etdev llm`, loaded in this process.

    Args:
        path: The .pte.
        batch: Sequences that are generated together.
        single: It has one method for prompts and single tokens.
        hears: It is an encoder-decoder, which `hear` gives a source.
        source: That source.

    Raises:
        RunError: It is not one that `etdev llm` wrote, or can't be loaded.
    """

    path: Path
    artifact: Artifact = field(init=False)
    length: int = field(init=False)
    batch: int = field(init=False)
    vocabulary: int = field(init=False)
    recipe: Recipe = field(init=False)
    single: bool = field(init=False)
    hears: bool = field(init=False)
    source: torch.Tensor | None = field(default=None, init=False)
    _states: tuple[torch.Tensor, ...] = field(default=(), init=False)
    _program: Any = field(init=False)
    _methods: dict[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        file = ProgramFile(self.path)
        self.artifact = file.artifact
        names = {method.name for method in self.artifact.methods}
        if not ({PREFILL, DECODE} <= names or SINGLE in names) or "get_max_seq_len" not in names:
            what = "has no methods prefill and decode with a cache"
            raise RunError(str(self.path), what, "write it with etdev llm")
        self.single, self.hears = SINGLE in names, ENCODE in names
        first = next(m for m in self.artifact.methods if m.name in (PREFILL, SINGLE))
        self.batch = int(first.inputs[0].sizes[0])
        self._program = file.runnable(share_arenas=True).load()
        self.length = int(self._call("get_max_seq_len")[0])
        self.vocabulary = int(self._call("get_vocab_size")[0])
        # Older files don't say that their scales are float32.
        known = json.loads(self._call(RECIPE)[0]) if RECIPE in names else {}
        self.recipe = Recipe(**{"scales": "float32", **known})

    @property
    def first(self) -> int | None:
        """The token that a text begins with, if the configuration names one."""
        names = {method.name for method in self.artifact.methods}
        return int(self._call("get_bos_id")[0]) if "get_bos_id" in names else None

    def hear(self, source: torch.Tensor) -> None:
        """Give an encoder-decoder its source, features or token ids (1, n).

        Raises:
            RunError: It has other sizes than the encoder takes.
        """
        self.source = source
        (states,) = self._call(ENCODE, (source,))
        self._states = (states.clone(),)

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text, as the configuration names them."""
        names = {method.name for method in self.artifact.methods}
        return tuple(map(int, self._call("get_eos_ids"))) if "get_eos_ids" in names else ()

    def generate(
        self,
        tokens: Sequence[Token],
        count: int,
        told: Callable[[Token], object] = lambda _: None,
        sampling: Sampling | None = None,
        ends: Collection[int] = (),
    ) -> list[Step]:
        """Generate `count` tokens behind a prompt, by default each the most likely one.

        Args:
            tokens: The prompt; in a batch each is a tuple of the tokens of all sequences.
            count: Tokens to generate.
            told: Called with each token when it is known.
            sampling: How each is chosen.
            ends: Tokens after which it stops, in a batch once all sequences had one.

        Raises:
            RunError: The cache is too short for it, or a call failed.
        """
        self.refuse_too_long(len(tokens), count)
        sampling, ended = sampling or Sampling(), set[int]()
        known, steps, done = list(tokens), list[Step](), 0
        for _ in range(count):
            new = known[done:]
            steps.append(self._step(new, done, bool(done)))
            done = len(known)
            known.append(each(steps[-1].logits, sampling.choose))
            steps[-1] = evolve(steps[-1], chosen=known[-1])
            told(known[-1])
            ended |= {row for row, own in enumerate(rows_of(known[-1:])) if own[0] in ends}
            if len(ended) == self.batch:
                break
        return steps

    def follow(self, tokens: Sequence[int]) -> Iterator[Step]:
        """Yield the step of each token of a text, whatever would be most likely."""
        for done, token in enumerate(tokens):
            yield self._step([token], done, bool(done))

    def cache(self) -> list[torch.Tensor]:
        """Return the keys and values of each layer, with a row for each position."""
        return list(self._call(CACHE))

    def refuse_too_long(self, prompt: int, count: int) -> None:
        """Refuse a generation that the cache has no rows for; its last token needs none."""
        if not prompt:
            raise RunError("prompt", "is empty", "give one token or more")
        if prompt + count - 1 > self.length:
            what = f"has {self.length} positions, and {prompt} tokens with {count} more need "
            most = self.length - prompt + 1
            less = f"generate at most {most}" if most > 0 else "give a shorter prompt"
            cure = f"{less}, or lower it with a larger --max-length"
            raise RunError(str(self.path), f"{what}{prompt + count - 1}", cure)

    def _step(self, tokens: Sequence[Token], start: int, decodes: bool) -> Step:
        method = SINGLE if self.single else DECODE if decodes else PREFILL
        more = () if decodes else self._states
        inputs = (*inputs_of(tokens, start), *more)
        if method not in self._methods:
            self._call(method, load=True)
        begin = time.perf_counter()
        (logits,) = self._call(method, inputs)
        seconds = time.perf_counter() - begin
        return Step(method, tuple(tokens), start, logits, seconds, more=more)

    def _call(self, method: str, inputs: Sequence[Any] = (), load: bool = False) -> Sequence[Any]:
        try:
            # ExecuTorch logs there from C++, too.
            with redirect_stderr(sys.__stderr__ or sys.stderr):
                if method not in self._methods:
                    self._methods[method] = self._program.load_method(method)
                return () if load else self._methods[method].execute(inputs)
        except Exception as error:
            what = f"{method} failed: {first_line(error)}"
            raise RunError(str(self.path), what, "see etdev check, and etdev run") from error


def rows_of(tokens: Sequence[Token]) -> list[list[int]]:
    """Return the tokens of each sequence of a batch, or of the only one."""
    columns = [token if isinstance(token, tuple) else (token,) for token in tokens]
    return [list(row) for row in zip(*columns, strict=True)]


def inputs_of(tokens: Sequence[Token], start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs of a call."""
    return torch.tensor(rows_of(tokens)), torch.tensor([start])
