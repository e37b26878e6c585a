"""The choice of tokens, and where a generation ends."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from etdev_llm.sampling import Sampling

LOGITS = torch.tensor([[0.0, 3.0, 2.0, -1.0, 1.0]])


def drawn(count=400, **options):
    sampling = Sampling(**options)
    return Counter(sampling.choose(LOGITS) for _ in range(count))


def test_without_a_temperature_the_most_likely_token_is_taken():
    assert drawn() == {1: 400}
    assert drawn(temperature=1.0, top_k=1) == {1: 400}


def test_tokens_are_drawn_as_often_as_they_are_likely():
    likely = LOGITS.softmax(-1)[0]
    found = drawn(temperature=1.0)
    assert all(abs(found[token] / 400 - float(likely[token])) < 0.08 for token in range(5))
    assert drawn(temperature=1.0) == found
    assert drawn(temperature=1.0, seed=1) != found
    assert set(drawn(temperature=1.0, top_k=2)) == {1, 2}
    # 0.64 and 0.24 of the probability.
    assert set(drawn(temperature=1.0, top_p=0.8)) == {1, 2}
    assert drawn(temperature=0.2)[1] > found[1]


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}])
def test_what_is_no_setting_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)
