#!/usr/bin/env python3
"""Makes the reference logits of the generated models with Hugging Face transformers.

    pip install -r requirements.txt
    python make.py            # rewrites ../../model/tests/reference

Each model here is the twin of a shape in `model/src/shapes`: written down once more, in the terms of Hugging Face
configurations, so that a wrong reading of the metadata shows. Its weights come from `weights.py`, its logits from float32
eager attention: the first PROMPT tokens in one go, the rest one by one over the model's own cache.

A file holds, little-endian: the magic, then u32 counts of tokens, prompt tokens and columns; the tokens; the columns of the
vocabulary that are kept; for every token the column of the greatest logit of all (u32), and the kept logits (f32).
"""

import json
import pathlib
import struct

import numpy as np
import torch
import transformers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import weights

OUT = pathlib.Path(__file__).parents[2] / "model" / "tests" / "reference"
MAGIC = b"LLAMAYR1"
N_VOCAB = 320
PROMPT, TOKENS = 40, 56
COLUMNS = np.arange(0, N_VOCAB, 4, dtype=np.uint32)


def llama(n_embd, n_layer, heads, heads_kv, n_ff, rope, **more):
    return LlamaForCausalLM, LlamaConfig(
        vocab_size=N_VOCAB, hidden_size=n_embd, num_hidden_layers=n_layer, num_attention_heads=heads,
        num_key_value_heads=heads_kv, intermediate_size=n_ff, rope_parameters=rope, max_position_embeddings=512,
        rms_norm_eps=1e-5, **more,
    )


def default(theta):
    return {"rope_type": "default", "rope_theta": theta}


def models():
    yield "llama-gqa", *llama(256, 2, 4, 2, 512, default(10000.0), tie_word_embeddings=True)
    yield "llama-mha", *llama(160, 2, 4, 4, 224, default(10000.0))
    yield "llama-bias", *llama(256, 2, 4, 2, 256, default(10000.0), attention_bias=True, mlp_bias=True)
    yield "llama-linear", *llama(
        96, 2, 3, 1, 160, {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, head_dim=64,
        tie_word_embeddings=True,
    )
    yield "llama3-rope", *llama(
        256, 2, 4, 1, 256,
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        tie_word_embeddings=True,
    )
    yield "llama-yarn", *llama(
        256, 2, 4, 2, 256,
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
         "original_max_position_embeddings": 128},
        tie_word_embeddings=True,
    )
    yield "mistral-window", MistralForCausalLM, MistralConfig(
        vocab_size=N_VOCAB, hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=256, rope_parameters=default(10000.0), max_position_embeddings=512, rms_norm_eps=1e-5,
        sliding_window=12,
    )
    yield "gemma3", Gemma3ForCausalLM, Gemma3TextConfig(
        vocab_size=N_VOCAB, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, intermediate_size=512, max_position_embeddings=512, query_pre_attn_scalar=64, sliding_window=8,
        sliding_window_pattern=2,
        rope_parameters={"full_attention": default(1e6), "sliding_attention": default(1e4)},
    )
    yield "gemma3-deep", Gemma3ForCausalLM, Gemma3TextConfig(
        vocab_size=N_VOCAB, hidden_size=96, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=1,
        head_dim=32, intermediate_size=160, max_position_embeddings=512, query_pre_attn_scalar=24, sliding_window=8,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": default(1e4),
        },
    )


# The GGUF name of each parameter of a layer.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LLAMA_LAYER = LAYER | {"post_attention_layernorm": "ffn_norm"}
GEMMA_LAYER = LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
MODEL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(parameter: str, gemma: bool) -> str:
    stem, kind = parameter.rsplit(".", 1)
    if stem in MODEL:
        return f"{MODEL[stem]}.{kind}"
    _, _, layer, stem = stem.split(".", 3)
    return f"blk.{layer}.{(GEMMA_LAYER if gemma else LLAMA_LAYER)[stem]}.{kind}"


def halves_from_pairs(w: np.ndarray, heads: int) -> np.ndarray:
    """Undoes llama files' reordering of the rows of q and k: there the two elements of a rotary pair are neighbours."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def fill(model, config):
    gemma = isinstance(config, Gemma3TextConfig)
    state = {}
    for parameter, value in model.state_dict().items():
        if parameter == "lm_head.weight" and config.tie_word_embeddings:
            continue
        name = gguf_name(parameter, gemma)
        w = weights.tensor(name, *value.shape)
        if not gemma and ".attn_q." in name:
            w = halves_from_pairs(w, config.num_attention_heads)
        if not gemma and ".attn_k." in name:
            w = halves_from_pairs(w, config.num_key_value_heads)
        if gemma and name.endswith("_norm.weight"):
            w = w - np.float32(1.0)  # Gemma files hold 1 + w; the subtraction is exact.
        state[parameter] = torch.from_numpy(np.ascontiguousarray(w))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()


@torch.no_grad()
def logits(model, ids):
    """Logits of every token, the first PROMPT at once and the rest over the cache; and those of one call for all."""
    whole = model(input_ids=ids, use_cache=False).logits[0]
    out = model(input_ids=ids[:, :PROMPT], use_cache=True)
    rows = [out.logits[0]]
    for i in range(PROMPT, TOKENS):
        out = model(input_ids=ids[:, i : i + 1], past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0])
    return torch.cat(rows).numpy(), whole.numpy()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    index = {"torch": torch.__version__, "transformers": transformers.__version__, "models": {}}
    for name, cls, config in models():
        config._attn_implementation = "eager"
        model = cls(config).eval()
        fill(model, config)
        tokens = weights.tokens(name, TOKENS, N_VOCAB)
        got, whole = logits(model, torch.from_numpy(tokens.astype(np.int64))[None])
        apart = float(np.abs(got - whole).max() / np.abs(whole).max())
        assert apart < 1e-5, f"{name}: prefill and decode are {apart} apart"
        with open(OUT / f"{name}.bin", "wb") as f:
            f.write(MAGIC + struct.pack("<3I", TOKENS, PROMPT, len(COLUMNS)))
            f.write(tokens.astype("<u4").tobytes() + COLUMNS.astype("<u4").tobytes())
            f.write(got.argmax(axis=1).astype("<u4").tobytes())
            f.write(got[:, COLUMNS].astype("<f4").tobytes())
        index["models"][name] = {
            "class": cls.__name__,
            "config": json.loads(config.to_json_string(use_diff=True)),
            "largest_logit": round(float(np.abs(got).max()), 3),
            "decode_from_prefill": apart,
        }
        print(f"{name}: logits up to {np.abs(got).max():.2f}, decode and prefill {apart:.1e} apart")
    (OUT / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
