"""Quantised decoders: values as torchao's in eager PyTorch, sizes, and patterns that stay whole."""

from statistics import median

import pytest
import torch
from attrs import evolve
from etdev_llm import generation
from etdev_llm.comparison import (
    TOLERANCE,
    Comparison,
    all_calls,
    cost_of_int8,
    generated,
    reference_of,
    replayed,
    tolerance_of,
)
from etdev_llm.player import Player, inputs_of
from etdev_llm.quantisation import Rows, quantise
from etdev_llm.sources import Recipe
from support.decoders import decoder
from torchao.quantization import IntxUnpackedToInt8Tensor, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup

from etdev import Lowerer
from etdev.errors import SourceError, VerifyError
from etdev.planner.patterns import Patterns
from etdev.runtime.runners import PYTHON

SIZES = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 256}


def quantised(linears, embeddings, **sizes):
    model = decoder("llama", **{**SIZES, **sizes})
    quantise(model, linears, embeddings)
    return model


def saved(model, folder, plugins=("cpu",)):
    made = generation(model, 24)
    lowered = Lowerer(plugins).lower(made.methods, settings=made.settings)
    return lowered, lowered.save(folder / "net.pte")


def assert_generates(model, path, quantize):
    wanted = [*generated(model, [3], 4), *generated(model, list(range(24)), 1)]
    done = Comparison("net.pte", tolerance_of(model, Recipe(quantize=quantize)))
    found, cache = replayed(path, wanted, PYTHON)
    done.compare(found, wanted)
    done.compare_cache(model, wanted, cache)
    return done


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_are_those_that_torchao_dequantises(bits):
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 64)
    model = decoder("llama", **SIZES)
    model.set_input_embeddings(table)
    other = torch.nn.Embedding.from_pretrained(table.weight.clone())
    kind = (torch.int8, PerAxis(0)) if bits == 8 else (torch.int4, PerGroup(32))
    config = IntxWeightOnlyConfig(weight_dtype=kind[0], granularity=kind[1])
    quantize_(other, config, filter_fn=lambda *_: True)
    quantise(model, "none", str(bits))
    assert isinstance(table.weight, Rows)
    rows = torch.tensor([[9, 0, 3, 3]])
    assert torch.equal(table(rows), other(rows))


@pytest.mark.suite
@pytest.mark.parametrize(
    ("linears", "embeddings"),
    [("none", "4"), ("8da4w", "none"), ("8da4w", "4"), ("8da8w", "8"), ("int8", "none")],
)
def test_quantised_decoders_generate_what_eager_does(linears, embeddings, tmp_path):
    model = quantised(linears, embeddings, num_hidden_layers=1)
    _, path = saved(model, tmp_path)
    done = assert_generates(model, path, linears)
    # A value between two steps is rare in a model of this size.
    assert median(done.errors) < 1e-6
    # The file says nothing of its scales, as older ones.
    assert Player(path).recipe.scales == "float32"


def test_scales_of_4_bits_are_those_that_xnnpack_keeps():
    model = quantised("8da4w", "none", num_hidden_layers=1)
    scales = [w.scale for w in model.parameters() if isinstance(w, IntxUnpackedToInt8Tensor)]
    assert {scale.dtype for scale in scales} == {torch.bfloat16}


@pytest.mark.suite
def test_the_tolerance_is_what_noise_does_to_pytorch():
    kinds = [("8da4w", "bfloat16"), ("8da4w", "float32"), ("int8", "bfloat16")]
    model = quantised("8da4w", "none", hidden_size=128)
    tolerances = [tolerance_of(model, Recipe(quantize=q, scales=scales)) for q, scales in kinds]
    assert TOLERANCE < tolerances[0] < 3e-2
    assert tolerances[1] >= 2e-2
    assert tolerances[2] == TOLERANCE


@pytest.mark.suite
def test_a_cache_in_8_bits_costs_what_is_said(tmp_path):
    model, recipe = decoder("llama", num_hidden_layers=1), Recipe(quantize_cache="int8")
    few, whole, error = cost_of_int8(model, 24)
    # 2 heads of 8 values, keys and values: 8 bits and a float for each head and token.
    assert (few, whole) == (24 * 2 * 2 * (8 + 4), 24 * 2 * 2 * 8 * 4)
    assert 1e-5 < error < 2e-2
    made = generation(model, 24, recipe=recipe)
    path = Lowerer(["cpu"]).lower(made.methods, settings=made.settings).save(tmp_path / "net.pte")
    rounded = reference_of(model, recipe)
    wanted = [*generated(rounded, list(range(24)), 1), *generated(rounded, [3, 1], 6)]
    done = Comparison("net.pte", tolerance_of(model, recipe))
    found, cache = replayed(path, wanted, PYTHON)
    done.compare(found, wanted)
    done.compare_cache(rounded, wanted, cache)
    # The same numbers, but for those that are rounded to either side.
    assert median(done.errors) < 1e-5
    assert Player(path).recipe == recipe


@pytest.mark.slice("gpt2-sizes1")
@torch.no_grad()
@pytest.mark.parametrize(("kind", "sizes"), [("mistral", {"sliding_window": 5}), ("gpt2", {})])
def test_a_cache_in_8_bits_is_compared_with_its_own_numbers(kind, sizes):
    model, recipe = decoder(kind, **sizes, initializer_range=0.2), Recipe(quantize_cache="int8")
    step = generation(model, 40, recipe=recipe).methods["prefill"][0]
    wanted = all_calls(reference_of(model, recipe), 40)
    done = Comparison("net.pte", tolerance_of(model, recipe))
    found = [evolve(one, logits=step(*inputs_of(one.tokens, one.start))) for one in wanted]
    done.compare(found, wanted)
    assert median(done.errors) < 1e-5
    # Those of a cache in float are further off.
    with pytest.raises(VerifyError, match=r"the logits of step \d+ \(\w+\) differ"):
        done.compare(found, all_calls(model, 40))


@pytest.mark.suite
def test_a_decoder_that_openvino_may_have_first_is_computed_with_integers(tmp_path):
    model = quantised("8da4w", "4", num_hidden_layers=1)
    lowered, path = saved(model, tmp_path, ("openvino", "cpu"))
    assert_generates(model, path, "8da4w")
    for method in ("prefill", "decode"):
        ledger = lowered.plan[method].ledger
        owners = {entry.owner for entry in ledger if entry.op == "aten.linear.default"}
        assert owners == {"cpu"}


@pytest.mark.suite
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_plan_that_makes_the_file_larger_says_so(torn, tmp_path, monkeypatch):
    model = quantised("8da4w", "none", num_hidden_layers=1, vocab_size=1024)
    alone, without = saved(model, tmp_path)
    known = without.stat().st_size
    if torn:
        monkeypatch.setattr(Patterns, "after", lambda self, *_: self)
    both, path = saved(model, tmp_path, ("openvino", "cpu"))
    more = {growth.plugin: growth.more_bytes for growth in both.plan.growths}
    assert alone.plan.growths == ()
    assert "; openvino adds about " in both.plan.summary
    # Torn layers are stored by other plugins, too, and these bytes are not OpenVINO's.
    grown = path.stat().st_size - known
    assert more["openvino"] < 1.05 * grown
    assert torn or more["openvino"] > 0.95 * grown


def test_what_has_no_size_for_it_is_refused():
    with pytest.raises(SourceError, match="embeddings of 48, not of a multiple of 32"):
        quantised("none", "4", hidden_size=48)
    with pytest.raises(SourceError, match="no linear layer whose inputs are a multiple of 32"):
        quantised("8da4w", "none", hidden_size=16, intermediate_size=48)
