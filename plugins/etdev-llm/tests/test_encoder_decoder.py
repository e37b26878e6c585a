"""Encoder-decoders agree with eager PyTorch, for long sources and short ones after them."""

import json

import numpy as np
import pytest
import torch
from attrs import evolve
from click.testing import CliRunner
from etdev_llm import encoder_decoder, generation
from etdev_llm.comparison import Comparison, all_calls, replayed
from support.decoders import encoder_decoder as small

from etdev import Lowerer
from etdev.cli.main import main
from etdev.errors import SourceError, VerifyError
from etdev.runtime.runners import PYTHON

LENGTH, SOURCE = 16, 20


@torch.no_grad()
def assert_agrees(model):
    wanted = all_calls(model, LENGTH, source_length=SOURCE)
    methods = generation(model, LENGTH, source_length=SOURCE).methods
    found = [evolve(step, logits=methods[step.method][0](*step.inputs)) for step in wanted]
    done = Comparison("net.pte")
    done.compare(found, wanted)
    done.compare_cache(model, wanted, methods["get_cache"][0]())
    return wanted


@pytest.mark.slice("m2m_100")
@pytest.mark.parametrize("kind", ["t5", "whisper", "bart", "m2m_100"])
def test_an_encoder_decoder_is_what_eager_is(kind):
    wanted = assert_agrees(small(kind))
    assert sum(step.method == "encode" for step in wanted) == 2
    lengths = {step.inputs[2].shape[1] for step in wanted if step.method == "prefill"}
    assert lengths == ({SOURCE} if kind == "whisper" else {SOURCE, SOURCE // 3})


def test_a_model_that_has_other_logits_with_a_cache_of_fixed_length_is_refused():
    what = "FSMTForConditionalGeneration: has other logits with a cache of fixed length"
    with pytest.raises(SourceError, match=what):
        generation(small("fsmt"), LENGTH, source_length=SOURCE)


@pytest.mark.suite
def test_rows_of_an_earlier_source_are_seen_if_they_are_not_masked(monkeypatch):
    model = small("t5")
    monkeypatch.setattr(encoder_decoder.Decoder, "_known", lambda self, _: torch.ones(1, self.rows))
    with pytest.raises(VerifyError, match=r"the logits of step \d+ \(decode\) differ"):
        assert_agrees(model)


@pytest.mark.suite
@pytest.mark.parametrize("kind", ["t5", "whisper"])
def test_a_file_of_an_encoder_decoder_generates_what_eager_does(kind, tmp_path):
    model = small(kind)
    made = generation(model, LENGTH, source_length=SOURCE)
    path = Lowerer(["cpu"]).lower(made.methods, settings=made.settings).save(tmp_path / "net.pte")
    wanted = all_calls(model, LENGTH, source_length=SOURCE)
    found, cache = replayed(path, wanted, PYTHON)
    done = Comparison("net.pte")
    done.compare(found, wanted)
    done.compare_cache(model, wanted, cache)
    assert done.equal == len(wanted)


@pytest.mark.suite
@pytest.mark.parametrize("kind", ["t5", "whisper"])
def test_the_commands_lower_and_generate_from_a_source(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = small(kind).config
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    np.save("sound.npy", np.random.default_rng(0).normal(size=(1, 8, 40)).astype("float32"))

    def etdev(*words, code=0):
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == code, done.output
        return done

    words = ["llm", "config.json", "-o", "net.pte", "--max-length", "16", "--max-source", "20"]
    assert "tokens equal" in etdev(*words, "--plugin", "cpu").output
    words = ["generate", "net.pte", "--count", "6", "--no-stop", "--check", "config.json"]
    source = "sound.npy" if kind == "whisper" else "3,1,4,1,5"
    done = etdev(*words, "--source", source, "--json")
    assert json.loads(done.stdout)["verified_steps"] >= 6
    told = etdev(*words, "--tokens", "1", code=1).output
    assert "is an encoder-decoder; give it --source" in told
