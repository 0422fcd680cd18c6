"""Checkpoints of models that transformers lacks, made from those of a model that computes the same."""

import re
from typing import Any

import numpy as np

from twins.base import Checkpoint

INTERNLM2 = {
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}


def internlm2(config: dict[str, Any], state: dict[str, np.ndarray]) -> Checkpoint:
    """A Llama as InternLM2: other names, and one matrix with, for each key head, its queries, the key and the value."""
    config = config | {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False}
    groups, out = config["num_key_value_heads"], {}
    for name, w in state.items():
        if re.search(r"\.[kv]_proj\.", name):
            continue
        if name.endswith("q_proj.weight"):
            parts = [state[name.replace("q_proj", p)] for p in ("q_proj", "k_proj", "v_proj")]
            w = np.concatenate([p.reshape(groups, -1, p.shape[-1]) for p in parts], axis=1).reshape(-1, w.shape[-1])
            name = name.replace("self_attn.q_proj", "attention.wqkv")
        for old, new in INTERNLM2.items():
            name = name.replace(old, new)
        out[name] = w
    return config, out


BAILING = {
    "embed_tokens": "word_embeddings",
    "self_attn.o_proj": "attention.dense",
    "block_sparse_moe.router.layer": "mlp.gate",
    "block_sparse_moe.input_linear.weight": "mlp.experts.gate_up_proj",
    "block_sparse_moe.output_linear.weight": "mlp.experts.down_proj",
    "shared_mlp.output_linear": "mlp.shared_experts.down_proj",
}


def bailing(config: dict[str, Any], state: dict[str, np.ndarray]) -> Checkpoint:
    """A Granite with experts as Ling, which joins queries, keys and values, and does not join gate and up."""
    shared = config["shared_intermediate_size"] // config["intermediate_size"]
    config = config | {
        "model_type": "bailing_moe",
        "num_experts": config["num_local_experts"],
        "moe_intermediate_size": config["intermediate_size"],
        "num_shared_experts": shared,
        "norm_topk_prob": True,
    }
    out = {}
    for name, w in state.items():
        if re.search(r"\.[kv]_proj\.", name):
            continue
        if name.endswith("q_proj.weight"):
            w = np.concatenate([state[name.replace("q_proj", p)] for p in ("q_proj", "k_proj", "v_proj")])
            name = name.replace("self_attn.q_proj", "attention.query_key_value")
        for old, new in BAILING.items():
            name = name.replace(old, new)
        if "shared_mlp.input_linear" in name:
            for part, half in zip(("gate_proj", "up_proj"), np.split(w, 2), strict=True):
                out[name.replace("shared_mlp.input_linear", f"mlp.shared_experts.{part}")] = half
        else:
            out[name] = w
    return config, out


def minicpm(config: dict[str, Any], state: dict[str, np.ndarray]) -> Checkpoint:
    """A Granite as MiniCPM, which gives its multipliers by what they are made of."""
    config = dict(config)
    n_embd, n_layer = config["hidden_size"], config["num_hidden_layers"]
    config |= {
        "architectures": ["MiniCPMForCausalLM"],
        "model_type": "minicpm",
        "scale_emb": config.pop("embedding_multiplier"),
        "scale_depth": config.pop("residual_multiplier") * n_layer**0.5,
        "dim_model_base": n_embd / config.pop("logits_scaling"),
    }
    assert abs(config.pop("attention_multiplier") - (n_embd // config["num_attention_heads"]) ** -0.5) < 1e-12
    return config, state
