"""The choice of the next token from the logits of a step."""

from __future__ import annotations

import torch
from attrs import field, frozen
from attrs.validators import ge, gt, le


@frozen
class Sampling:
    """A way to choose tokens, as transformers' warpers of logits and `etdev new app` have it.

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
        order = logits.double().reshape(-1).sort(descending=True, stable=True)
        values = order.values / self.temperature
        if self.top_k:
            values = values[values >= values[min(self.top_k, len(values)) - 1]]
        weights = values.softmax(-1)
        kept = weights[weights.cumsum(-1) - weights < self.top_p]
        # A generated app in C++ draws the same number of 53 bits from the same Mersenne Twister.
        part = torch.rand((), dtype=torch.float64, generator=self._random)
        drawn = torch.searchsorted(kept.cumsum(-1), part * kept.sum(), right=True)
        return int(order.indices[min(int(drawn), len(kept) - 1)])
