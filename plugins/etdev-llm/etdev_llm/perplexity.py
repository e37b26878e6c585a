"""The perplexity of a text, in eager PyTorch and with a .pte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from etdev.errors import SourceError
from etdev_llm.player import Player


@frozen
class Evaluation:
    """The perplexity of a text, in windows of as many tokens as the cache has positions.

    Args:
        eager: Of PyTorch, without any quantisation by `etdev llm`.
        file: Of the .pte.
        tokens: The number of tokens that were predicted.
    """

    eager: float
    file: float
    tokens: int

    def __str__(self) -> str:
        known = f"perplexity {self.eager:.5g} in PyTorch, {self.file:.5g} in the file"
        return f"{known}, {self.file - self.eager:+.1e} over {self.tokens} tokens"


def evaluate(model: Any, path: Path, tokens: Sequence[int]) -> Evaluation:
    """Compare a .pte with PyTorch on a text.

    Raises:
        SourceError: The text has less than two tokens.
    """
    player = Player(path)
    parts = [tokens[i : i + player.length] for i in range(0, len(tokens), player.length)]
    parts = [part for part in parts if len(part) > 1]
    if not parts:
        raise SourceError("--evaluate", f"has {len(tokens)} tokens", "give a longer text")

    @torch.no_grad()
    def eager(part: Sequence[int]) -> Iterator[torch.Tensor]:
        yield from model(input_ids=torch.tensor([list(part)])).logits[0, :-1]

    def replayed(part: Sequence[int]) -> Iterator[torch.Tensor]:
        for step in player.follow(part[:-1]):
            yield step.logits.reshape(-1)

    count = sum(len(part) - 1 for part in parts)
    return Evaluation(_perplexity(eager, parts), _perplexity(replayed, parts), count)


def _perplexity(
    logits: Callable[[Sequence[int]], Iterator[torch.Tensor]], parts: Sequence[Sequence[int]]
) -> float:
    losses = [
        -row.double().log_softmax(-1)[token]
        for part in parts
        for row, token in zip(logits(part), part[1:], strict=True)
    ]
    return float(torch.stack(losses).mean().exp())
