"""`etdev llm` and `etdev generate` from a config, a folder and a function to text."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from etdev_llm import generation
from etdev_llm.comparison import generated
from etdev_llm.player import Player
from etdev_llm.sources import Recipe
from support.decoders import SIZES, decoder
from support.documents import blocks, commands
from support.emulator import emulated
from transformers import AutoConfig

from etdev import Lowerer
from etdev.cli.main import main
from etdev.errors import EtdevWarning

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    return "config.json"


def etdev(*words, code=0):
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


def test_a_generation_ends_with_a_token_that_ends_a_text(config):
    ends = {"num_hidden_layers": 1, "eos_token_id": [*range(0, SIZES["vocab_size"], 2)]}
    Path(config).write_text(json.dumps({"model_type": "llama", **SIZES, **ends}))
    words = ["llm", config, "-o", "net.pte", "--max-length", "16", "--plugin", "cpu"]
    assert "tokens equal" in etdev(*words).output
    words = ["generate", "net.pte", "--tokens", "1,2", "--count", "12", "--json"]
    words += ["--temperature", "5", "--random-seed", "3"]
    whole = json.loads(etdev(*words, "--no-stop", "--check", config).stdout)
    assert (len(whole["tokens"]), whole["verified_steps"]) == (12, 12)
    end = next(number for number, token in enumerate(whole["tokens"]) if token % 2 == 0)
    assert json.loads(etdev(*words).stdout)["tokens"] == whole["tokens"][: end + 1]


@pytest.mark.suite
def test_the_commands_lower_and_generate(config):
    words = ["llm", config, "-o", "net.pte", "--max-length", "16", "--plugin", "cpu"]
    assert "has no tokenizer" in etdev(*words, "--evaluate", "once", code=1).output
    done = etdev(*words, "--with-ledger", "--lock", "etdev.lock", "--seed", "3")
    assert "verified over" in done.output
    assert "tokens equal" in done.output
    etdev(*words, "--with-ledger", "--lock", "etdev.lock", "--locked", "--seed", "3")
    words = ["generate", "net.pte", "--tokens", "1,2,3", "--count", "14"]
    found = json.loads(etdev(*words, "--check", config, "--json").stdout)
    assert (len(found["tokens"]), found["verified_steps"]) == (14, 14)
    assert "has 16 positions" in etdev(*words[:-1], "15", code=1).output
    done = etdev(*words, "--check", config, "--seed", "1", code=1)
    assert "the logits of step 0 (prefill) differ" in done.output
    assert "etdev explain: " not in etdev("explain", "net.pte").output


@pytest.mark.suite
def test_the_first_commands_of_the_readme_print_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    _, made, lower, generate = commands(README)[:4]
    subprocess.run(made, shell=True, check=True)
    done = [etdev(*line.split()[1:]) for line in (lower, generate)]
    told = next(blocks(README, "")).text.splitlines()
    tokens = told[told.index("") + 1]
    assert tokens == done[1].stdout.splitlines()[0]
    sizes = [float(size) for size in re.findall(r"(?:net.pte:|the file has) ([\d.]+) KiB", text)]
    quantised = ["--quantize", "8da4w", "--quantize-embedding", "4", "--no-verify", "--force"]
    found = [Path("net.pte").stat().st_size / 1024]
    etdev(*lower.split()[1:], *quantised)
    found.append(Path("net.pte").stat().st_size / 1024)
    assert sizes == pytest.approx(found, rel=0.01)


@pytest.mark.suite
def test_a_batch_is_generated_together(config):
    words = ["llm", config, "-o", "net.pte", "--max-length", "16", "--plugin", "cpu", "--batch"]
    assert "take a --batch of 1" in etdev(*words, "2", "--single-method", code=2).output
    told = etdev(*words, "2", "--quantize-cache", "int8").output
    assert "next: etdev generate net.pte --tokens 1,2,3 --tokens 1,2,3 --check" in told
    words = ["generate", "net.pte", "--count", "5", "--no-stop", "--tokens", "1,2,3"]
    assert "2 sequences together, and 1 prompts are given" in etdev(*words, code=1).output
    assert "has sequences of 2 to 3 tokens" in etdev(*words, "--tokens", "4,5", code=1).output
    wrong = etdev(*words, "--tokens", "4,-5,96", code=1).output
    assert "prompt: has the ids -5, 96, which the model has no tokens for; give 0 to 95" in wrong
    words += ["--tokens", "4,5,6", "--check", config]
    found = json.loads(etdev(*words, "--json").stdout)
    assert found["prompt"] == [[1, 2, 3], [4, 5, 6]]
    assert [len(row) for row in found["tokens"]] == [5, 5]
    assert found["verified_steps"] == 5
    rows = [",".join(map(str, row)) for row in found["tokens"]]
    assert etdev(*words).stdout.splitlines()[:2] == rows


@pytest.mark.suite
@emulated
def test_a_decoder_is_verified_on_another_processor(config, tmp_path):
    text = '[plugins.cpu]\n[targets.pi]\ntriple = "aarch64-linux-gnu"\nplugins = ["cpu"]\n'
    (tmp_path / "registry.toml").write_text(text)
    told = etdev("llm", config, "-o", "net.pte", "--max-length", "8", "--target", "pi").output
    assert "in cortex-a53 (qemu), cortex-a76 (qemu)" in told
    words = ["generate", "net.pte", "--tokens", "1,2", "--count", "3", "--check", config]
    found = json.loads(etdev(*words, "--target", "pi", "--json").stdout)
    assert (found["verified_steps"], found["decode_per_s"]) == (3, None)


@pytest.mark.suite
def test_verification_steps_across_the_limits_of_a_configuration(config, monkeypatch):
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.5, 2, 3, 4]}
    fields = {"model_type": "phi3", **SIZES, "initializer_range": 0.2, "num_hidden_layers": 1}
    fields |= {"original_max_position_embeddings": 16, "rope_parameters": rope}
    Path(config).write_text(json.dumps(fields))
    words = ["llm", config, "-o", "net.pte", "--max-length", "20", "--plugin", "cpu"]
    assert "give at most 16 tokens" in etdev(*words, code=1).output
    monkeypatch.setattr("etdev_llm.methods.fix_frequencies", lambda *_: None)
    wrong = "(decode) differ by"
    assert wrong in etdev(*words, "--runner", "python", code=1).output
    etdev(*words, "--no-verify")
    words = ["generate", "net.pte", "--tokens", "1,2,3", "--count", "2"]
    etdev(*words)
    assert wrong in etdev(*words, "--check", config, code=1).output


@pytest.mark.suite
def test_a_folder_with_its_tokenizer_gives_text(config, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    words = ["once", "upon", "a", "time", "there", "was", "an", "old", "king"]
    model = tokenizers.models.WordLevel({"?": 0, **{w: i + 1 for i, w in enumerate(words)}}, "?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    decoder("llama", vocab_size=16).save_pretrained("llama")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained("llama")
    words = ["llm", "llama", "-o", "net.pte", "--max-length", "16", "--plugin", "cpu"]
    etdev(*words, "--quantize", "8da8w", "--quantize-embedding", "8", "--dtype", "float32")
    told = etdev(*words, "--force", "--evaluate", "once upon a time " * 9, "--no-verify").output
    (told,) = (line for line in told.splitlines() if "perplexity" in line)
    assert re.fullmatch(
        r"net.pte: perplexity [\d.]+ in PyTorch, [\d.]+ in the file, [-+]\d.+ over 33 tokens", told
    )
    words = ["generate", "net.pte", "--prompt", "once upon a"]
    streamed = etdev(*words, "--count", "4")
    assert streamed.stdout.splitlines()[0] in streamed.stderr.splitlines()
    done = etdev(*words, "--count", "4", "--check", "llama", "--json")
    found = json.loads(done.stdout)
    assert found["prompt"] == [1, 2, 3]
    assert found["verified_steps"] == 4
    assert Player(Path("net.pte")).recipe.scales == "bfloat16"


@pytest.mark.suite
def test_executorchs_own_runner_generates_the_same(config, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    runner = pytest.importorskip("executorch.extension.llm.runner")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    words = ["once upon a time there was an old king who had a daughter and a dog " * 20]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=96, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.save("tokenizer.json")
    model = decoder("llama", vocab_size=tokenizer.get_vocab_size(), eos_token_id=1, pad_token_id=0)
    made = generation(model, 32, single_method=True)
    Lowerer(["cpu"]).lower(made.methods, settings=made.settings).save("net.pte")
    prompt, count = "once upon a time", 12
    steps = generated(model, tokenizer.encode(prompt).ids, count)
    wanted = [tokenizer.id_to_token(step.next).replace("\u0120", " ") for step in steps]
    own = runner.TextLLMRunner("net.pte", "tokenizer.json")
    options = runner.GenerationConfig(echo=False, temperature=0.0, max_new_tokens=count)
    for _ in range(2):
        found = []
        own.generate(prompt, options, found.append)
        own.reset()
        assert "".join(found) == "".join(wanted)
        assert len(found) == count


@pytest.mark.suite
def test_a_function_returns_the_decoder(config, tmp_path):
    code = "from support.decoders import decoder\ndef model():\n    return decoder('qwen3')\n"
    (tmp_path / "net.py").write_text(code)
    words = ["llm", "net.py:model", "-o", "net.pte", "--max-length", "8", "--plugin", "cpu"]
    done = etdev(*words, "--dtype", "float16", "--json")
    assert json.loads(done.stdout)["verification"]["calls"]


def test_a_folder_without_weights_has_random_ones(config, tmp_path):
    (tmp_path / "model").mkdir()
    Path(config).rename(tmp_path / "model/config.json")
    with pytest.warns(EtdevWarning, match="model: has no weights, so they are random"):
        one = Recipe(seed=3).load("model")
    other = Recipe(seed=3).load("model/config.json")
    assert torch.equal(one.lm_head.weight, other.lm_head.weight)


def test_a_config_is_read_as_transformers_writes_it(tmp_path):
    """It writes the infinite limit of Mamba's steps as an object."""
    AutoConfig.for_model("mamba2", num_hidden_layers=1, vocab_size=16).save_pretrained(tmp_path)
    model = Recipe().load(str(tmp_path / "config.json"))
    assert list(model.config.time_step_limit) == [0.0, float("inf")]


def test_a_source_that_is_not_there_is_an_error_with_its_name(config, monkeypatch):
    # Where there is no network, transformers waits for it.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = etdev("llm", "some-org/some-model", "-o", "net.pte", code=1)
    assert "some-org/some-model: can't be loaded" in done.output
    done = etdev("llm", config, "-o", "net.pte", "--no-verify", "--runner", "python", code=2)
    assert "not both" in done.output
