"""Small decoders and encoder-decoders of transformers with random weights."""

from __future__ import annotations

from typing import Any

import torch

LENGTH = 48
SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MANY = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "num_key_value_heads": 4,
}  # fmt: skip
# The options of each architecture that SIZES doesn't have, or has otherwise.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "gemma3n_text": {
        "head_dim": 8, "num_hidden_layers": 4, "num_kv_shared_layers": 2, "laurel_rank": 4,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "sliding_window": 8,
        "activation_sparsity_pattern": [0.0] * 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "phi": {},
    "phi3": {},
    "gpt2": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "gpt_neox": {},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {},
    "falcon": {},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "stablelm": {},
    "starcoder2": {},
    "olmo": {},
    "olmo2": {},
    "cohere": {},
    "cohere2": {"sliding_window": 8},
    "granite": {},
    "nemotron": {},
    "persimmon": {},
    "biogpt": {},
    "xglm": {"d_model": 32, "ffn_dim": 48, "attention_heads": 4, "num_layers": 2},
    "glm": {"head_dim": 8},
    "glm4": {"head_dim": 8},
    "smollm3": {},
    "helium": {"head_dim": 8},
    "exaone4": {"sliding_window": 8},
    "ernie4_5": {"head_dim": 8},
    "mixtral": EXPERTS,
    "qwen2_moe": {**MANY, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**MANY, "head_dim": 8},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": EXPERTS,
    "phimoe": EXPERTS,
    "gpt_oss": {**EXPERTS, "head_dim": 8, "sliding_window": 8},
    "deepseek_v3": {
        **LATENT, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1,
    },
    "deepseek_v2": {
        **LATENT, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    },
    "llama4_text": {
        **EXPERTS, "head_dim": 8, "attention_chunk_size": 8, "floor_scale": 12, "moe_layers": [1],
        "intermediate_size_mlp": 48, "num_experts_per_tok": 1,
    },
    "dbrx": {
        "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {
            "ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32,
        },
    },
    "mamba": {"state_size": 4, "expand": 2},
    "rwkv": {},
    "recurrent_gemma": {"head_dim": 8, "lru_width": 32},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "jamba": {"num_experts": 2, "mamba_d_state": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
}  # fmt: skip


def decoder(kind: str, **sizes: Any) -> Any:
    """Return a decoder with random weights, the same each time."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **ARCHITECTURES.get(kind, {}), **sizes})
    return AutoModelForCausalLM.from_config(config).eval()


SEVERAL = {
    "t5": {
        "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
    },
    "whisper": {
        "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 16,
        "decoder_start_token_id": 1,
    },
    "bart": {"max_position_embeddings": 64},
    "m2m_100": {"max_position_embeddings": 64},
    "fsmt": {},
}  # fmt: skip


def encoder_decoder(kind: str) -> Any:
    """Return an encoder-decoder of two layers with random weights, the same each time."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "d_model": 32, "pad_token_id": 0, "bos_token_id": 1}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    config = AutoConfig.for_model(kind, **{**sizes, "eos_token_id": 2, **SEVERAL[kind]})
    whole = AutoModelForSpeechSeq2Seq if kind == "whisper" else AutoModelForSeq2SeqLM
    return whole.from_config(config).eval()
