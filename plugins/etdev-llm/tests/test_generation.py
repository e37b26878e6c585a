"""Decoders in one .pte: logits, tokens, errors, and weights that are there once."""

import json

import pytest
import torch
from click.testing import CliRunner
from etdev_llm import generation
from etdev_llm.export import asked, prompts
from etdev_llm.playback import Player, compare
from transformers import AutoConfig, AutoModelForCausalLM

from etdev import Lowerer
from etdev.cli.main import main
from etdev.errors import RunError, SourceError, VerifyError

LENGTH = 24
SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MORE = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "mixtral": EXPERTS,
    "qwen2_moe": {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip


def decoder(kind, **sizes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **MORE[kind], **sizes})
    return AutoModelForCausalLM.from_config(config).eval()


def lowered(model, folder, plugins=("cpu",), single=False, **settings):
    made = generation(model, LENGTH, single)
    result = Lowerer(plugins, **settings).lower(made.methods, settings=made.settings)
    return result, result.save(folder / "net.pte")


def assert_generates(model, path):
    player, steps = Player(path), []
    for prompt in [*prompts(model, LENGTH), [3, 4]]:
        steps += player.generate(prompt, min(6, LENGTH - len(prompt) + 1))
    assert {1, 2, 7, LENGTH} <= {len(step.tokens) for step in steps if not step.start}
    assert len(compare(model, steps, "net.pte")) == len(steps) == 25
    return steps


def test_a_decoder_generates_what_eager_does(tmp_path):
    model = decoder("llama", num_hidden_layers=1)
    _, path = lowered(model, tmp_path)
    steps = assert_generates(model, path)
    data = path.read_bytes()
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            assert data.count(weight.detach().numpy().tobytes()) == 1, name
    player = Player(path)
    assert (player.length, player.vocabulary) == (LENGTH, SIZES["vocab_size"])
    assert len(player.generate([5] * LENGTH, 1)) == 1
    with pytest.raises(RunError, match="has 24 positions, and 24 tokens with 2 more need 25"):
        player.generate([5] * LENGTH, 2)
    with pytest.raises(RunError, match="decode failed"):
        player._step([5], LENGTH, True)
    with torch.no_grad():
        model.lm_head.weight[7] += 1
    with pytest.raises(VerifyError, match="step 0"):
        compare(model, steps, "net.pte")


@pytest.mark.suite
@pytest.mark.parametrize("plugins", [("cpu",), ("openvino", "cpu"), ("cpu", "openvino")], ids=str)
@pytest.mark.parametrize("kind", MORE)
def test_decoders_of_several_architectures(kind, plugins, tmp_path):
    model = decoder(kind)
    _, path = lowered(model, tmp_path, plugins)
    assert_generates(model, path)


@pytest.mark.suite
def test_methods_may_have_plugins_of_their_own(tmp_path):
    model = decoder("llama")
    names, limits = asked(["prefill=openvino,cpu", "decode=cpu"])
    result, path = lowered(model, tmp_path, names, limits=limits)
    owners = {m.method: {p.plugin for p in m.partitions} for m in result.plan.methods}
    assert owners["decode"] == {"cpu"}
    assert "openvino" in owners["prefill"]
    assert_generates(model, path)


@pytest.mark.suite
def test_a_single_method_generates_the_same(tmp_path):
    model = decoder("llama")
    _, path = lowered(model, tmp_path, single=True)
    assert_generates(model, path)


@pytest.mark.suite
def test_the_commands_lower_and_generate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"model_type": "llama", **SIZES}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["llm", "config.json", "-o", "net.pte", "--max-length", "16", "--plugin", "cpu"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "agree with PyTorch" in done.output
    words = ["generate", "net.pte", "--tokens", "1,2,3", "--count", "14"]
    done = CliRunner().invoke(main, [*words, "--check", "config.json", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (len(found["tokens"]), found["verified_steps"]) == (14, 14)
    done = CliRunner().invoke(main, [*words[:-1], "15"])
    assert done.exit_code == 1
    assert "has 16 positions" in done.output
    done = CliRunner().invoke(main, [*words, "--check", "config.json", "--seed", "1"])
    assert done.exit_code == 1
    assert "step 0 (prefill) has logits that differ" in done.output


@pytest.mark.parametrize(
    ("texts", "order", "limits"),
    [
        ([], None, {}),
        (["openvino,cpu"], ["openvino", "cpu"], {}),
        (["b", "a"], ["b", "a"], {}),
        (["prefill=a,b", "decode=b"], ["a", "b"],
         {"a": {"methods": ["prefill"]}, "b": {"methods": ["prefill", "decode"]}}),
        (["decode=b", "prefill=a,b"], ["a", "b"],
         {"a": {"methods": ["prefill"]}, "b": {"methods": ["decode", "prefill"]}}),
    ],
)  # fmt: skip
def test_plugins_are_read_by_method(texts, order, limits):
    assert asked(texts) == (order, limits)


def test_what_has_no_rows_by_position_is_refused():
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "mamba", vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=2, expand=2
    )
    with pytest.raises(SourceError, match="Mamba"):
        generation(AutoModelForCausalLM.from_config(config).eval(), 8)
    with pytest.raises(SourceError, match="can't have 65 tokens; give 2 to 64"):
        generation(decoder("llama"), 65)
