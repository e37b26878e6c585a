"""The perplexity of a text, which a file has as PyTorch does."""

from pathlib import Path

import pytest
import torch
from etdev_llm import perplexity
from etdev_llm.player import Step
from support.decoders import decoder

from etdev.errors import SourceError


class Follower:
    """A stand-in for Player, whose .pte would take seconds: it steps through PyTorch's logits."""

    length = 10

    def __init__(self, model, factor=1.0):
        self.model, self.factor = model, factor

    @torch.no_grad()
    def follow(self, tokens):
        for n in range(1, len(tokens) + 1):
            logits = self.model(input_ids=torch.tensor([tokens[:n]])).logits[:, -1]
            yield Step("decode", (tokens[n - 1],), n - 1, logits * self.factor, 0.0)


def test_it_is_that_of_each_window(monkeypatch):
    model = decoder("llama", num_hidden_layers=1, initializer_range=0.3)
    tokens = [(7 * n * n) % 96 for n in range(25)]
    monkeypatch.setattr(perplexity, "Player", lambda _: Follower(model))
    found = perplexity.evaluate(model, Path("net.pte"), tokens)
    assert found.tokens == 9 + 9 + 4
    assert found.file == pytest.approx(found.eager, rel=1e-5)
    losses = []
    with torch.no_grad():
        for part in (tokens[:10], tokens[10:20], tokens[20:]):
            ids = torch.tensor([part])
            # transformers' own loss is the mean over the tokens of a window.
            losses.append(float(model(input_ids=ids, labels=ids).loss) * (len(part) - 1))
    assert found.eager == pytest.approx(float(torch.tensor(sum(losses) / 22).exp()), rel=1e-5)
    monkeypatch.setattr(perplexity, "Player", lambda _: Follower(model, 0.5))
    assert perplexity.evaluate(model, Path("net.pte"), tokens).file < 0.99 * found.eager
    with pytest.raises(SourceError, match="--evaluate: has 1 tokens; give a longer text"):
        perplexity.evaluate(model, Path("net.pte"), [3])
