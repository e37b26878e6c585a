"""The choice of tokens, and where a generation ends."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from click.testing import CliRunner
from etdev_llm.sampling import Sampling
from support.decoders import SIZES

from etdev.cli.main import main

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


def etdev(*words):
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_generation_ends_with_a_token_that_ends_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {**SIZES, "num_hidden_layers": 1}
    config = {
        "model_type": "llama",
        **sizes,
        "eos_token_id": list(range(0, sizes["vocab_size"], 2)),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    etdev(
        "llm",
        "config.json",
        "-o",
        "net.pte",
        "--max-length",
        "16",
        "--plugin",
        "cpu",
        "--no-verify",
    )
    words = ["generate", "net.pte", "--tokens", "1,2", "--count", "12", "--json"]
    words += ["--temperature", "5", "--random-seed", "3"]
    whole = json.loads(etdev(*words, "--no-stop", "--check", "config.json"))
    assert (len(whole["tokens"]), whole["verified_steps"]) == (12, 12)
    end = next(number for number, token in enumerate(whole["tokens"]) if token % 2 == 0)
    assert json.loads(etdev(*words))["tokens"] == whole["tokens"][: end + 1]
