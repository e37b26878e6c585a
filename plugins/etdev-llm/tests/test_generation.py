"""Decoders in one .pte: logits, tokens, errors, and weights that are there once."""

import pytest
import torch
from attrs import evolve
from etdev_llm import generation, methods
from etdev_llm.comparison import (
    Comparison,
    across,
    all_calls,
    expected,
    generated,
    prompts,
    replayed,
)
from etdev_llm.export import asked
from etdev_llm.methods import Unlowerable
from etdev_llm.player import Player, Step, inputs_of, rows_of
from etdev_llm.positions import boundaries
from support.decoders import LENGTH, SIZES, decoder

from etdev import Lowerer
from etdev.errors import RunError, SourceError, VerifyError
from etdev.runtime.runners import PYTHON

LONG = [1.5, 2.0, 3.0, 4.0]
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


def longrope(short):
    """A decoder with other frequencies behind 16 tokens, for all positions."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short, "long_factor": LONG}
    return decoder(
        "phi3", original_max_position_embeddings=16, rope_parameters=rope,
        num_hidden_layers=1, initializer_range=0.2,
    )  # fmt: skip


def by_layer(rope):
    """A decoder with frequencies for each type of layer."""
    types = ["sliding_attention", "full_attention"]
    ropes = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, types[1]: rope}
    return decoder("gemma3_text", layer_types=types, rope_parameters=ropes)


def lowered(model, folder, plugins=("cpu",), single=False, **settings):
    made = generation(model, LENGTH, single)
    result = Lowerer(plugins, **settings).lower(made.methods, settings=made.settings)
    return result, result.save(folder / "net.pte")


def assert_generates(model, path, **options):
    player, steps = Player(path), []
    for prompt in [*prompts(model, LENGTH), [3, 4]]:
        steps += player.generate(prompt, min(6, LENGTH - len(prompt) + 1))
    assert {1, 2, 7, LENGTH} <= {len(step.tokens) for step in steps if not step.start}
    done = Comparison("net.pte", **options)
    done.compare(steps, expected(model, steps))
    done.compare_cache(model, steps, player.cache())
    assert len(done.errors) == len(steps) == 25
    assert 0 < done.cache_error < done.tolerance
    return steps, done


@pytest.mark.suite
def test_a_decoder_generates_what_eager_does(tmp_path):
    model = decoder("llama", num_hidden_layers=1)
    _, path = lowered(model, tmp_path)
    steps, done = assert_generates(model, path)
    assert done.equal == len(steps)
    data = path.read_bytes()
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            assert data.count(weight.detach().numpy().tobytes()) == 1, name
    player = Player(path)
    assert (player.length, player.vocabulary) == (LENGTH, SIZES["vocab_size"])
    assert len(player.generate([5] * LENGTH, 1)) == 1
    with pytest.raises(RunError, match="has 48 positions, and 48 tokens with 2 more need 49"):
        player.generate([5] * LENGTH, 2)
    with pytest.raises(RunError, match="49 tokens with 1 more need 49; give a shorter prompt, or"):
        player.generate([5] * (LENGTH + 1), 1)
    with pytest.raises(RunError, match="decode failed"):
        player._step([5], LENGTH, True)
    last = player.generate(steps[-1].tokens, 1)
    wrong = [value.clone() for value in player.cache()]
    wrong[1][0, 0, 0, 0] += 1
    with pytest.raises(VerifyError, match="the values of cache 0 differ by"):
        Comparison("net.pte").compare_cache(model, last, wrong)
    with torch.no_grad():
        model.lm_head.weight[7] += 1
    with pytest.raises(VerifyError, match="the logits of step 0"):
        Comparison("net.pte").compare(steps, expected(model, steps))


@pytest.mark.suite
@torch.no_grad()
def test_sequences_of_a_batch_are_compared_one_by_one():
    model = decoder("mistral", num_hidden_layers=1)
    step = generation(model, 20, batch=2).methods["prefill"][0]
    wanted = all_calls(model, 20, batch=2)
    found = [evolve(one, logits=step(*inputs_of(one.tokens, one.start))) for one in wanted]
    done = Comparison("net.pte")
    done.compare(found, wanted)
    assert done.equal == len(found) > 10
    assert {len(one.tokens) for one in wanted if not one.start} >= {1, 7, 8, 9, 15, 16, 17, 20}
    found[3] = evolve(found[3], logits=found[3].logits.clone())
    found[3].logits[1] += 0.01 * found[3].logits[1].abs().max()
    with pytest.raises(VerifyError, match="the logits of step 3"):
        Comparison("net.pte").compare(found, wanted)


@pytest.mark.suite
def test_sequences_of_a_batch_have_the_values_that_each_has_alone(tmp_path):
    model = decoder("mistral", num_hidden_layers=1)
    made = generation(model, 20, batch=3)
    lowered = Lowerer(["cpu"]).lower(made.methods, settings=made.settings)
    path = lowered.save(tmp_path / "net.pte")
    player = Player(path)
    assert player.batch == 3
    prompt = prompts(model, 5, batch=3)[2]
    steps = player.generate(prompt, 8)
    done = Comparison("net.pte")
    done.compare(steps, expected(model, steps))
    done.compare_cache(model, steps, player.cache())
    rows = zip(rows_of(prompt), rows_of([step.next for step in steps]), strict=True)
    for number, (row, found) in enumerate(rows):
        alone = generated(model, row, 8)
        assert found == [step.next for step in alone]
        for step, true in zip(steps, alone, strict=True):
            torch.testing.assert_close(step.logits[number : number + 1], true.logits)
    ends = {row[2 + n] for n, row in enumerate(rows_of([step.next for step in steps]))}
    assert 3 <= len(player.generate(prompt, 8, ends=ends)) <= 5
    wrong = [evolve(step, logits=step.logits.flip(0)) for step in steps]
    with pytest.raises(VerifyError, match="the logits of step 0"):
        Comparison("net.pte").compare(wrong, expected(model, steps))


@pytest.mark.suite
@pytest.mark.parametrize("plugins", [("cpu",), ("openvino", "cpu"), ("cpu", "openvino")], ids=str)
@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3_text", "mixtral", "qwen2_moe"])
def test_decoders_of_several_architectures(kind, plugins, tmp_path):
    model = decoder(kind)
    _, path = lowered(model, tmp_path, plugins)
    assert_generates(model, path)


def test_convolutions_keep_their_last_inputs_until_a_prompt_begins_anew(tmp_path):
    model = decoder("lfm2")
    _, path = lowered(model, tmp_path)
    # Each call is executed once, since another one would move the inputs on.
    wanted = all_calls(model, LENGTH)
    found, cache = replayed(path, wanted, PYTHON)
    done = Comparison(str(path))
    done.compare(found, wanted)
    done.compare_cache(model, found, cache)
    assert done.equal == len(found)
    assert done.cache_error < 1e-5


def test_a_batch_with_convolutions_is_exported_for_every_length():
    step, inputs, sizes = generation(decoder("lfm2"), 20, batch=2).methods["prefill"]
    torch.export.export(step, inputs, dynamic_shapes=sizes)


@pytest.mark.suite
def test_layers_may_read_the_cache_of_another_layer(tmp_path):
    model = decoder("gemma3n_text")
    _, path = lowered(model, tmp_path)
    assert_generates(model, path)
    assert len(Player(path).cache()) == 4 < 2 * model.config.num_hidden_layers


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


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("mamba", "MambaForCausalLM: keeps its state in NoneType"),
        ("gpt_neo", "GPTNeoForCausalLM: reads rows of a cache of fixed length"),
        ("recurrent_gemma", "RecurrentGemmaForCausalLM: can't be called with tokens and a cache"),
        ("dbrx", r"DbrxForCausalLM: has tensors whose sizes depend on values \(nonzero\)"),
    ],
)
def test_a_model_whose_state_has_no_rows_by_position_is_refused(kind, what):
    with pytest.raises(SourceError, match=what):
        generation(decoder(kind), LENGTH)


@torch.no_grad()
def assert_follows(step, model, length, steps):
    wanted = [*across(model, length), *steps]
    found = [evolve(one, logits=step(*inputs_of(one.tokens, one.start))) for one in wanted]
    Comparison("net.pte").compare(found, wanted)
    return wanted


def test_frequencies_that_change_with_the_length_are_refused_or_seen(monkeypatch):
    model = longrope([1.0] * 4)
    with pytest.raises(SourceError) as caught:
        generation(model, 17)
    assert str(caught.value) == (
        "Phi3ForCausalLM: its longrope changes the frequencies of all positions beyond 16 tokens; "
        "give at most 16 tokens, or replace short_factor with long_factor in its configuration"
    )
    steps = [step for prompt in prompts(model, 32) for step in generated(model, prompt, 1)]
    monkeypatch.setattr(methods, "fix_frequencies", lambda *_: None)
    wrong = methods.Step(model, 32)
    with pytest.raises(VerifyError, match=r"the logits of step \d \(decode\) differ"):
        assert_follows(wrong, model, 32, [])
    monkeypatch.setattr("etdev_llm.comparison.boundaries", lambda *_: [])
    assert len(assert_follows(wrong, model, 32, steps)) == 4


@pytest.mark.slice("longrope", "one list")
@pytest.mark.parametrize(
    ("make", "ends"),
    [
        (lambda: longrope([1.0] * 4), [15, 16]),
        (lambda: longrope(LONG), [15, 16, 17]),
        (lambda: decoder("llama", rope_parameters=DYNAMIC), [63, 64]),
        (lambda: by_layer(DYNAMIC), [7, 8, 9, 15, 16, 17, 63, 64]),
    ],
    ids=["longrope", "one list", "dynamic", "by layer"],
)
def test_frequencies_that_no_length_changes_are_constants(make, ends):
    model = make()
    step = generation(model, ends[-1]).methods["prefill"][0]
    wanted = assert_follows(step, model, ends[-1], generated(model, [1, 2, 3], 4))
    assert sorted({len(one.tokens) for one in wanted if not one.start}) == [3, *ends]
    tokens = torch.zeros(1, 1, dtype=torch.long)
    exported = torch.export.export(step, (tokens, tokens[0]))
    assert all(
        "inv_freq" not in name for name in exported.graph_signature.buffers_to_mutate.values()
    )


@pytest.mark.parametrize(
    ("kind", "sizes", "limits"),
    [
        ("mistral", {"sliding_window": 8}, [8, 16]),
        ("llama4_text", {}, [8, 12, 16, 24]),
        ("gpt2", {"max_position_embeddings": 20}, [20, 40]),
        ("phi3", {"original_max_position_embeddings": 16}, [16, 32]),
        ("llama", {"hidden_size": 32, "num_hidden_layers": 12}, []),
    ],
)
def test_the_limits_of_positions_that_a_configuration_names(kind, sizes, limits):
    assert boundaries(decoder(kind, **sizes).config, 40) == limits


def test_a_table_of_positions_that_is_shorter_than_the_cache_is_refused():
    model = decoder("gptj", rotary_dim=8)
    model.config.n_positions = 128
    assert generation(model, 64).methods
    with pytest.raises(SourceError, match="GPTJForCausalLM: can't take a token at position 64"):
        generation(model, 65)


def test_positions_that_begin_with_another_number_than_0_are_the_models_own():
    model = decoder("roberta", is_decoder=True, max_position_embeddings=20, initializer_range=0.2)
    step = generation(model, 18).methods["prefill"][0]
    assert not step.takes_positions
    assert len(assert_follows(step, model, 18, generated(model, [3, 4], 8))) == 8
    # Those that pad, and with them the first one here, have position 0.
    with pytest.raises(SourceError, match="RobertaForCausalLM: can't take a token at position 19"):
        generation(model, 20)


@pytest.mark.slice("deepseek_v2")
@torch.no_grad()
@pytest.mark.parametrize("kind", ["deepseek_v2", "llama4_text"])
def test_complex_rotary_embeddings_are_pairs_of_real_numbers(kind):
    model = decoder(kind)
    step = generation(model, 20).methods["prefill"][0]
    wanted = all_calls(model, 20)
    found = [evolve(one, logits=step(*inputs_of(one.tokens, one.start))) for one in wanted]
    done = Comparison("net.pte")
    done.compare(found, wanted)
    assert done.equal == len(found) > 10
    with Unlowerable("a decoder"):
        step(*inputs_of([3, 4], 0))


def test_other_complex_numbers_are_refused():
    with pytest.raises(SourceError, match=r"complex numbers \(fft"), Unlowerable("a decoder"):
        torch.fft.fft(torch.ones(4))


def test_a_model_that_raises_is_named():
    model = decoder("llama")
    model.model.forward = None
    with pytest.raises(SourceError, match="LlamaForCausalLM: can't be called"):
        generation(model, 8)
    with pytest.raises(SourceError, match=r"LlamaForCausalLM: can't be called with \d+ tokens"):
        all_calls(model, 8)
    with pytest.raises(SourceError, match="MistralForCausalLM: can't be called with a cache of"):
        generation(decoder("mistral", sliding_window=0), 8)
    with pytest.raises(SourceError, match="can't have 65 tokens; give 2 to 64"):
        generation(decoder("llama"), 65)


def test_logits_that_are_not_a_number_in_pytorch_are_not_verified():
    steps = [Step("decode", (1,), 0, torch.tensor([[value, 1.0]]), 0.0) for value in (0, torch.nan)]
    with pytest.raises(VerifyError, match=r"logits of step 0 \(decode\) differ by nan"):
        Comparison("net.pte").compare(steps[:1], steps[1:])
