"""The choice of the next token from the logits of a step."""

from __future__ import annotations

import torch
from attrs import field, frozen
from attrs.validators import ge, gt, le


@frozen
class Sampling:
    """A way to choose tokens, with transformers' own warpers of logits.

    Args:
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: The number of most likely tokens that count; 0 for all.
        top_p: Only the most likely tokens with this much probability together count.
        seed: Of the random numbers.
    """

    temperature: float = field(default=0.0, validator=ge(0))
    top_k: int = field(default=0, validator=ge(0))
    top_p: float = field(default=1.0, validator=[gt(0), le(1)])
    seed: int = 0
    _random: torch.Generator = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_random", torch.Generator().manual_seed(self.seed))

    def choose(self, logits: torch.Tensor) -> int:
        """Return a token; logits of any shape with one row."""
        if not self.temperature:
            return int(logits.argmax())
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        warpers = [TemperatureLogitsWarper(self.temperature)]
        warpers += [TopKLogitsWarper(self.top_k)] if self.top_k else []
        warpers += [TopPLogitsWarper(self.top_p)] if self.top_p < 1 else []
        row = logits.float().reshape(1, -1)
        for warp in warpers:
            row = warp(None, row)
        return int(torch.multinomial(row.softmax(-1), 1, generator=self._random))
