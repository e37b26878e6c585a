"""Architectures: a small model with random weights of each of many families."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from support.zoo import Animal, Zoo, random

ZOO = Zoo()
SMALL: dict[str, Any] = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99},
    **{"intermediate_size": 48, "max_position_embeddings": 64},
}
DECODER = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 99}
BART = {
    **{"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 99},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64},
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0}
SPEECH = {**SMALL, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
SPEECH |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8}
SPEECH |= {"num_conv_pos_embedding_groups": 4}
STAGES = {"depths": [1, 1], "num_channels": 3, "image_size": 32}

TEXTS = {
    **dict.fromkeys(
        (
            *("albert", "camembert", "electra", "ernie", "ibert", "megatron-bert", "mpnet"),
            *("nystromformer", "rembert", "roberta", "roc_bert", "roformer", "squeezebert"),
            *("deberta", "deberta-v2", "fnet", "splinter", "yoso", "data2vec-text"),
        ),
        SMALL,
    ),
    "albert": {**SMALL, "embedding_size": 16},
    "convbert": {**SMALL, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 99},
    "modernbert": {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    | {"cls_token_id": 1, "sep_token_id": 2},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": 99},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99, "n_langs": 1},
    "squeezebert": {**SMALL, "embedding_size": 32},
    "canine": SMALL,
}
DECODERS = {
    **dict.fromkeys(
        (
            *("mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3"),
            *("stablelm", "starcoder2", "olmo", "olmo2", "cohere", "granite", "nemotron"),
            *("persimmon", "biogpt", "glm", "smollm3", "diffllama", "helium", "gpt_neox"),
            *("exaone4", "ernie4_5", "arcee", "seed_oss", "apertus"),
        ),
        DECODER,
    ),
    "persimmon": SMALL,
    **dict.fromkeys(("gpt2", "gpt_bigcode"), GPT),
    "gpt_neo": {**SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]},
    "opt": {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99},
    "mixtral": {**DECODER, "num_local_experts": 4},
    "qwen2_moe": {**DECODER, "num_experts": 4, "moe_intermediate_size": 24}
    | {"shared_expert_intermediate_size": 24, "num_experts_per_tok": 2},
    "olmoe": {**DECODER, "num_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
    "lfm2": {**DECODER, "layer_types": ["conv", "full_attention"]},
    "recurrent_gemma": {**DECODER, "lru_width": 32, "attention_window_size": 8},
}
TWO_SIDED = {
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "m2m_100", "blenderbot"), BART),
    **dict.fromkeys(("t5", "mt5", "umt5"), T5),
}
IMAGES = {
    **dict.fromkeys(
        (
            *("deit", "beit", "dinov2", "ijepa", "siglip_vision_model", "clip_vision_model"),
            *("vit_msn", "yolos", "vit", "dinov2_with_registers", "dinov3_vit"),
        ),
        IMAGE,
    ),
    "yolos": {**IMAGE, "image_size": [32, 32], "num_detection_tokens": 3},
    "swin": {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1]}
    | {"num_heads": [2, 2], "window_size": 4},
    "swinv2": {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1]}
    | {"num_heads": [2, 2], "window_size": 4},
    "convnextv2": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 32},
    "poolformer": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]},
    "pvt_v2": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]}
    | {"num_attention_heads": [1, 1, 2, 2], "image_size": 32},
    "regnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
    "bit": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_groups": 2},
    "segformer": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]}
    | {"num_attention_heads": [1, 1, 2, 2], "image_size": 32},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 16, 16]}
    | {"neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 8]},
    "mobilevitv2": {"image_size": 64, "width_multiplier": 0.25},
    "mobilenet_v1": {"image_size": 64, "depth_multiplier": 0.25},
    "levit": {"image_size": 64, "hidden_sizes": [16, 16, 16], "depths": [1, 1, 1]}
    | {"num_attention_heads": [2, 2, 2], "key_dim": [8, 8, 8]},
    "focalnet": {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "focal_levels": [2, 2]}
    | {"focal_windows": [3, 3]},
    "swiftformer": {"depths": [1, 1, 1, 1], "embed_dims": [8, 8, 16, 16]},
    "hiera": {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 2]}
    | {"image_size": [64, 64], "masked_unit_size": [8, 8], "num_query_pool": 2},
    "vitdet": {**IMAGE, "window_block_indices": [0]},
}
SPEECHES = {
    "wav2vec2": SPEECH,
    "hubert": SPEECH,
    "wavlm": SPEECH,
    "unispeech": SPEECH,
    "data2vec-audio": {**SPEECH, "num_conv_pos_embeddings": 1},
    "sew": {**SPEECH, "squeeze_factor": 2},
}


class Tensors(nn.Module):
    """A model without its cache, whose outputs are tensors."""

    def __init__(self, model: nn.Module, fixed: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, *inputs: torch.Tensor) -> Any:
        named = dict(zip(self.fixed["names"], inputs, strict=True))
        made = self.model(**named, **self.fixed["options"], return_dict=True)
        return {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}


def add(kind: str, config: dict[str, Any], calls: list[Any], names: list[str], **options: Any):
    """Add a model of transformers by the name of its family."""

    def build() -> nn.Module:
        from transformers import AutoConfig, AutoModel

        torch.manual_seed(0)
        made = AutoConfig.for_model(kind, **config)
        made._attn_implementation = "sdpa"
        try:
            model = AutoModel.from_config(made)
        except ValueError:
            made._attn_implementation = "eager"
            model = AutoModel.from_config(made)
        with torch.no_grad():
            for weight in model.parameters():
                # What most families start with leaves nothing of the input in the output.
                if weight.dim() > 1:
                    weight.normal_(std=weight.shape[-1] ** -0.5)
        return Tensors(model.eval(), {"names": names, "options": options})

    name = kind.replace("-", "_")
    ZOO.animals[name if name not in ZOO.animals else f"{name}_both"] = Animal(build, calls, False)


def tokens(seed: int) -> torch.Tensor:
    """Tokens that differ, none of which is special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 90, (2, 16), generator=generator)


TOKENS = [(tokens(seed),) for seed in range(3)]
PICTURES = [(random(1, 3, 32, 32, seed=seed),) for seed in range(3)]
LARGER = [(random(1, 3, 64, 64, seed=seed),) for seed in range(3)]
SOUNDS = [(random(1, 800, seed=seed),) for seed in range(3)]
for _kind, _config in TEXTS.items():
    add(_kind, _config, TOKENS, ["input_ids"])
for _kind, _config in DECODERS.items():
    add(_kind, _config, TOKENS, ["input_ids"], use_cache=False)
for _kind, _config in TWO_SIDED.items():
    _pairs = [(tokens(seed), tokens(seed + 9)[:, :6]) for seed in range(3)]
    add(_kind, _config, _pairs, ["input_ids", "decoder_input_ids"], use_cache=False)
for _kind, _config in IMAGES.items():
    _large = _config.get("image_size") in (64, [64, 64]) or _kind == "swiftformer"
    add(_kind, _config, LARGER if _large else PICTURES, ["pixel_values"])
for _kind, _config in SPEECHES.items():
    add(_kind, _config, SOUNDS, ["input_values"])
