"""Folders with quantised weights as torchao, GPTQ and AWQ publish them, small and made here."""

import json

import pytest
import torch
from etdev_llm import generation
from etdev_llm.comparison import Comparison, generated, replayed
from etdev_llm.quantisation import check
from etdev_llm.sources import Recipe
from safetensors.torch import load_file, save_file
from support.decoders import decoder
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8Tensor,
    IntxUnpackedToInt8Tensor,
)
from torchao.quantization.granularity import PerRow
from transformers import AutoModelForCausalLM, TorchAoConfig

from etdev import Lowerer
from etdev.errors import SourceError
from etdev.runtime.runners import PYTHON

GROUP = 32
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
FORMS = {
    "gptq": {"quant_method": "gptq", "checkpoint_format": "gptq"},
    "gptq_v2": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"},
    "awq": {"quant_method": "awq", "version": "gemm"},
}


def packed(numbers, order=range(8)):
    """Pack eight numbers of the last dimension in each int32, in an order of the columns."""
    groups = numbers.reshape(*numbers.shape[:-1], -1, 8)
    whole = sum(groups[..., column].long() << (4 * place) for place, column in enumerate(order))
    return ((whole + 2**31) % 2**32 - 2**31).to(torch.int32)


def published(folder, form, zeros=None, scale=0.0625, **fields):
    """Save a decoder with packed layers, and return it with the values that they stand for."""
    torch.manual_seed(1)
    model = decoder("llama", hidden_size=64, intermediate_size=64, num_hidden_layers=1)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        rows, columns = module.weight.shape
        values = torch.randint(0, 16, (columns, rows))
        zero = torch.full((columns // GROUP, rows), 8)
        if zeros:
            zero = torch.randint(1, 16, zero.shape)
        scales = scale * torch.randint(1, 4, zero.shape).half()
        each = [part.repeat_interleave(GROUP, 0) for part in (zero, scales.float())]
        module.weight.data = ((values - each[0]) * each[1]).T.contiguous()
        del tensors[f"{name}.weight"]
        own = {"scales": scales}
        if form == "awq":
            own |= {"qweight": packed(values, AWQ), "qzeros": packed(zero, AWQ)}
        else:
            own |= {"qweight": packed(values.T).T, "qzeros": packed(zero - int(form == "gptq"))}
            own |= {"g_idx": torch.arange(columns, dtype=torch.int32) // GROUP}
        tensors |= {f"{name}.{part}": value.contiguous() for part, value in own.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"bits": 4, "group_size": GROUP, **FORMS[form], **fields}
    (folder / "config.json").write_text(json.dumps(config))
    return model


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[3, 1, 4, 1, 5]])).logits


@pytest.mark.slice("gptq-symmetric", "gptq_v2-zeros", "awq-zeros")
@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zeros"])
@pytest.mark.parametrize("form", FORMS)
def test_packed_layers_have_the_values_that_they_stand_for(form, zeros, tmp_path):
    model = published(tmp_path, form, zeros)
    found = Recipe().load(str(tmp_path))
    assert torch.allclose(logits(found), logits(model), atol=1e-6, rtol=0)
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(key for key in tensors if key.endswith("v_proj.qweight"))
    tensors[name] ^= 0xF
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert not torch.allclose(logits(Recipe().load(str(tmp_path))), logits(model), atol=1e-4)


def test_what_xnnpack_has_no_exact_product_for_is_refused(tmp_path):
    whole = Recipe(quantize="8da4w")
    published(tmp_path, "gptq")
    weight = whole.load(str(tmp_path)).model.layers[0].mlp.up_proj.weight
    assert (weight.activation_quantization, weight.scale.dtype) == (
        "int8_asym_per_token",
        torch.bfloat16,
    )
    published(tmp_path, "gptq", zeros=True)
    with pytest.raises(SourceError, match=r"q_proj: has zero points, which XNNPACK"):
        whole.load(str(tmp_path))
    published(tmp_path, "gptq", scale=0.01)
    with pytest.raises(SourceError, match=r"q_proj: has scales beyond bfloat16, which XNNPACK"):
        whole.load(str(tmp_path))


def test_other_forms_are_refused_by_name(tmp_path):
    published(tmp_path, "gptq", bits=3)
    with pytest.raises(SourceError, match="has weights of 3 bits in the form gptq; give 4 bits"):
        Recipe().load(str(tmp_path))
    published(tmp_path, "awq", version="gemv")
    with pytest.raises(SourceError, match="has weights of 4 bits in the form gemv"):
        Recipe().load(str(tmp_path))
    published(tmp_path, "gptq", quant_method="hqq")
    with pytest.raises(SourceError, match="has weights that are quantised by hqq"):
        Recipe().load(str(tmp_path))
    published(tmp_path, "gptq")
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(key for key in tensors if key.endswith("g_idx"))
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(SourceError, match=r"groups in another order \(desc_act\)"):
        Recipe().load(str(tmp_path))


def test_a_folder_of_torchao_has_the_values_of_its_model(tmp_path):
    decoder("llama", hidden_size=64, intermediate_size=64).save_pretrained(tmp_path / "float")
    kind = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4)
    config = TorchAoConfig(quant_type=kind)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "float", quantization_config=config)
    model.save_pretrained(tmp_path / "few")
    found = Recipe().load(str(tmp_path / "few"))
    assert torch.equal(logits(found), logits(model))
    weight = found.model.layers[0].mlp.up_proj.weight
    assert isinstance(weight, IntxUnpackedToInt8Tensor)
    module = found.model.layers[0].mlp.up_proj
    module.weight = torch.nn.Parameter(
        Int8Tensor.from_hp(module.weight.dequantize(), PerRow()), False
    )
    with pytest.raises(SourceError, match=r"up_proj\.weight: is a Int8Tensor of torchao"):
        check(found)


@pytest.mark.suite
@pytest.mark.parametrize("linears", ["none", "8da4w"])
def test_a_file_of_packed_layers_generates_what_eager_does(linears, tmp_path):
    published(tmp_path, "gptq")
    model = Recipe(quantize=linears).load(str(tmp_path))
    made = generation(model, 16)
    path = Lowerer(["cpu"]).lower(made.methods, settings=made.settings).save(tmp_path / "net.pte")
    wanted = generated(model, [3, 1, 4], 4)
    found, _ = replayed(path, wanted, PYTHON)
    done = Comparison("net.pte", 1e-4 if linears == "none" else 3e-2)
    done.compare(found, wanted)
