#!/usr/bin/env python3
"""A developer's check: tiny random models, converted, give llama.cpp the logits that transformers computes.

    python check.py make FOLDER [NAME ...]   # with torch and transformers: models to GGUF, and their logits
    python check.py peer FOLDER [NAME ...]   # with llama-cpp-python: evaluates them and prints the differences

The two steps are apart because the packages seldom are in one environment. Without names, all models are taken.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

N_VOCAB, TOKENS = 320, 48
SIZES = {
    "vocab_size": N_VOCAB, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 384, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}
GPT2 = {
    "vocab_size": N_VOCAB, "n_embd": 256, "n_layer": 3, "n_head": 4, "n_positions": 512, "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
LOCAL_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "head_dim": 64,
}

# Some readers take the number of layers for a sign of the large models' features.
DEEP = {"num_hidden_layers": 64, "hidden_size": 64, "intermediate_size": 96}


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LONG = {"long_factor": [1.5 + 0.1 * i for i in range(32)], "short_factor": [1.0 + 0.05 * i for i in range(32)]}
GPT_OSS = {"head_dim": 64, "sliding_window": 8} | rope(
    "yarn", 150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096
)
GRANITE = {
    "embedding_multiplier": 6.0, "logits_scaling": 4.0, "residual_multiplier": 0.4, "attention_multiplier": 0.125,
}


def as_minicpm(config, state):
    """Granite whose multipliers are MiniCPM's."""
    n_layer, n_embd = config["num_hidden_layers"], config["hidden_size"]
    multipliers = {
        "scale_emb": config["embedding_multiplier"], "scale_depth": config["residual_multiplier"] * n_layer**0.5,
        "dim_model_base": n_embd / config["logits_scaling"],
    }
    return config | multipliers | {"model_type": "minicpm"}, state


def renamed(state, names: dict[str, str]) -> dict:
    """The parameters, with parts of their names replaced."""
    out = {}
    for key, w in state.items():
        for old, new in names.items():
            key = key.replace(old, new)
        out[key] = w
    return out


def as_internlm2(config, state):
    """Llama with q, k and v in one matrix: for each head of k and v, its heads of q before it."""
    heads, heads_kv = config["num_attention_heads"], config["num_key_value_heads"]
    out = dict(state)
    for i in range(config["num_hidden_layers"]):
        q, k, v = (out.pop(f"model.layers.{i}.self_attn.{part}_proj.weight") for part in "qkv")
        dim = q.shape[0] // heads
        groups = [w.reshape(heads_kv, -1, dim, w.shape[1]) for w in (q, k, v)]
        out[f"model.layers.{i}.attention.wqkv.weight"] = np.concatenate(groups, axis=1).reshape(-1, q.shape[1])
    names = {
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings", "lm_head": "output",
    }
    return config | {"model_type": "internlm2", "bias": False}, renamed(out, names)


def as_exaone(config, state):
    """Llama under EXAONE 3's names."""
    names = {
        "self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention", "mlp.gate_proj": "mlp.c_fc_0",
        "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj", "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2", "model.layers": "transformer.h", "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
    }
    own = {"num_layers": config["num_hidden_layers"], "layer_norm_epsilon": config["rms_norm_eps"]}
    more = own | {"activation_function": "silu", "model_type": "exaone"}
    return config | more, renamed(state, names)


def as_bailing(config, state):
    """Granite with experts under Ling's names: q, k and v in one matrix, gate and up of the shared expert in two."""
    n_ff, out = config["intermediate_size"], dict(state)
    for i in range(config["num_hidden_layers"]):
        attention, shared = f"model.layers.{i}.self_attn", f"model.layers.{i}.shared_mlp.input_linear.weight"
        qkv = [out.pop(f"{attention}.{part}_proj.weight") for part in "qkv"]
        out[f"model.layers.{i}.attention.query_key_value.weight"] = np.concatenate(qkv)
        gate, up = np.split(out.pop(shared), 2)
        for part, w in (("gate", gate), ("up", up)):
            out[f"model.layers.{i}.mlp.shared_experts.{part}_proj.weight"] = w
    names = {
        "self_attn.o_proj": "attention.dense", "embed_tokens": "word_embeddings", "block_sparse_moe.router": "mlp.gate",
        "block_sparse_moe": "mlp", "shared_mlp.output_linear": "mlp.shared_experts.down_proj",
    }
    more = {"moe_intermediate_size": n_ff, "num_shared_experts": config["shared_intermediate_size"] // n_ff}
    return config | more | {"model_type": "bailing_moe"}, renamed(out, names)


def as_mxfp4(config, state):
    """gpt-oss with blocks for experts, as published; the model gets the values that they stand for."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    random, out = np.random.default_rng(2), dict(state)
    for name in [name for name in state if name.endswith(("gate_up_proj", "down_proj"))]:
        w = out.pop(name)
        shape = (w.shape[0], w.shape[2], w.shape[1] // 32)
        blocks = random.integers(0, 256, (*shape, 16), dtype=np.uint8)
        scales = random.integers(121, 124, shape, dtype=np.uint8)
        out[f"{name}_blocks"], out[f"{name}_scales"] = blocks, scales
        packed = torch.from_numpy(blocks), torch.from_numpy(scales)
        w[...] = convert_moe_packed_tensors(*packed, dtype=torch.float32).numpy()
    return config | {"quantization_config": {"quant_method": "mxfp4"}}, out


# Name: model_type, configuration, and for models that transformers does not have, what makes one of another. A window
# of 512 takes part in nothing, as some readers ignore it.
MODELS = {
    "llama": ("llama", SIZES | rope()),
    "llama-bias": ("llama", SIZES | rope() | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-3.1": ("llama", SIZES | rope("llama3", 500000.0, **LLAMA3)),
    "llama-linear": ("llama", SIZES | rope("linear", factor=4.0) | {"head_dim": 32}),
    "llama-yarn": ("llama", SIZES | rope("yarn", **YARN)),
    "llama-yarn-factor": ("llama", SIZES | rope("yarn", **YARN, attention_factor=1.5)),
    "mistral": ("mistral", SIZES | rope() | {"sliding_window": 512}),
    "mixtral": ("mixtral", SIZES | rope() | LOCAL_EXPERTS),
    "qwen2": ("qwen2", SIZES | rope(theta=1e6)),
    "qwen3": ("qwen3", SIZES | rope(theta=1e6)),
    "qwen2moe": (
        "qwen2_moe", SIZES | rope() | EXPERTS | {"shared_expert_intermediate_size": 256, "norm_topk_prob": False},
    ),
    "qwen3moe": ("qwen3_moe", SIZES | rope() | EXPERTS | {"head_dim": 64}),
    "gemma": ("gemma", SIZES | rope() | {"head_dim": 64, "tie_word_embeddings": True}),
    "gemma2": (
        "gemma2",
        SIZES | rope()
        | {"head_dim": 64, "sliding_window": 8, "query_pre_attn_scalar": 64, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "gemma3_text",
        SIZES | {
            "head_dim": 64, "sliding_window": 8, "query_pre_attn_scalar": 64, "num_hidden_layers": 7,
            "tie_word_embeddings": True, "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "gpt2": ("gpt2", GPT2),
    "phi2": ("phi", SIZES | rope(partial_rotary_factor=0.5) | {"num_key_value_heads": 4, "intermediate_size": 1024}),
    "phi3": ("phi3", SIZES | rope() | {"sliding_window": 512}),
    "phi3-long": (
        "phi3",
        SIZES | rope("longrope", **LONG, original_max_position_embeddings=256)
        | {"original_max_position_embeddings": 256, "tie_word_embeddings": True},
    ),
    "stablelm": ("stablelm", SIZES | rope(partial_rotary_factor=0.25) | {"use_qkv_bias": True}),
    "stablelm-12b": (
        "stablelm", SIZES | rope(partial_rotary_factor=0.25) | {"qk_layernorm": True, "use_parallel_residual": True},
    ),
    "falcon-7b": ("falcon", SIZES | rope() | {"new_decoder_architecture": False, "multi_query": True}),
    "falcon-40b": ("falcon", SIZES | rope() | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "gptneox": ("gpt_neox", SIZES | rope(partial_rotary_factor=0.25)),
    "gptneox-serial": ("gpt_neox", SIZES | rope(partial_rotary_factor=0.25) | {"use_parallel_residual": False}),
    "gpt-oss": ("gpt_oss", SIZES | GPT_OSS | LOCAL_EXPERTS),
    "gpt-oss-mxfp4": ("gpt_oss", SIZES | GPT_OSS | LOCAL_EXPERTS, as_mxfp4),
    "olmo": ("olmo", SIZES | rope()),
    "olmo2": ("olmo2", SIZES | rope(theta=5e5)),
    "olmo3": ("olmo3", SIZES | rope(theta=5e5) | {"sliding_window": 8, "num_hidden_layers": 5}),
    "olmoe": ("olmoe", SIZES | rope() | LOCAL_EXPERTS | {"num_key_value_heads": 4, "norm_topk_prob": False}),
    "granite": (
        "granite",
        SIZES | rope() | GRANITE,
    ),
    "granitemoe": (
        "granitemoe",
        SIZES | rope() | LOCAL_EXPERTS | GRANITE,
    ),
    "granitemoeshared": (
        "granitemoeshared",
        SIZES | rope() | LOCAL_EXPERTS | {"shared_intermediate_size": 256, "attention_multiplier": 0.1},
    ),
    "smollm3": ("smollm3", SIZES | rope(theta=2e6) | {"num_hidden_layers": 5}),
    "starcoder": ("gpt_bigcode", GPT2 | {"multi_query": True}),
    "starcoder2": ("starcoder2", SIZES | rope()),
    "command-r": ("cohere", SIZES | rope() | {"tie_word_embeddings": True, "logit_scale": 0.25}),
    "command-r-plus": ("cohere", SIZES | DEEP | rope() | {"tie_word_embeddings": True, "use_qk_norm": True}),
    "cohere2": (
        "cohere2", SIZES | rope() | {"tie_word_embeddings": True, "sliding_window": 8, "num_hidden_layers": 5},
    ),
    "nemotron": ("nemotron", SIZES | rope(partial_rotary_factor=0.5)),
    "ernie4_5": ("ernie4_5", SIZES | rope(theta=5e5) | {"head_dim": 64}),
    "ernie4_5-moe": (
        "ernie4_5_moe",
        SIZES | rope(theta=5e5) | {"head_dim": 64, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 128,
                                   "moe_num_shared_experts": 2},
    ),
    "hunyuan-dense": ("hunyuan_v1_dense", SIZES | rope("dynamic", alpha=50.0, factor=1.0) | {"head_dim": 64}),
    "hunyuan-moe": ("hunyuan_v1_moe", SIZES | rope() | {"num_experts": 8, "moe_topk": 2, "head_dim": 64}),
    "arcee": ("arcee", SIZES | rope()),
    "seed_oss": ("seed_oss", SIZES | rope() | {"head_dim": 32}),
    "chatglm": ("glm", SIZES | rope(partial_rotary_factor=0.5) | {"head_dim": 64, "attention_bias": True}),
    "glm4": ("glm4", SIZES | rope(partial_rotary_factor=0.5) | {"head_dim": 64}),
    "glm4moe": ("glm4_moe", SIZES | rope(partial_rotary_factor=0.5) | ROUTED | {"use_qk_norm": True}),
    "afmoe": (
        "afmoe", SIZES | rope() | EXPERTS | {"head_dim": 64, "num_shared_experts": 2, "num_dense_layers": 1, "sliding_window": 8,
                                             "route_scale": 2.5, "mup_enabled": True, "num_hidden_layers": 5},
    ),
    "minimax-m2": (
        "minimax_m2", SIZES | rope(partial_rotary_factor=0.5) | LOCAL_EXPERTS | {"head_dim": 64},
    ),
    # What this model computes is Granite without its multipliers.
    "bailingmoe": (
        "granitemoeshared",
        SIZES | rope() | LOCAL_EXPERTS | {"shared_intermediate_size": 768, "attention_multiplier": 0.125}, as_bailing,
    ),
    "dots1": ("dots1", SIZES | rope() | ROUTED | {"num_key_value_heads": 4}),
    "mistral3": (
        "ministral3",
        SIZES | rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
                     mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1) | {"head_dim": 64},
    ),
    "minicpm": ("granite", SIZES | rope() | GRANITE, as_minicpm),
    "internlm2": ("llama", SIZES | rope(), as_internlm2),
    "exaone": ("llama", SIZES | rope("llama3", 500000.0, **LLAMA3), as_exaone),
    "exaone4": ("exaone4", SIZES | rope(theta=1e6) | {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "exaone4-32b": ("exaone4", SIZES | DEEP | rope("llama3", 1e6, **LLAMA3) | {"sliding_window": 8}),
}


def tokenizer() -> dict:
    """The tokenizer.json of a made-up vocabulary of N_VOCAB tokens."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    texts += [chr(0x4E00 + i) for i in range(N_VOCAB - len(texts))]
    added = [{"id": i, "content": texts[i], "special": True} for i in range(3)]
    model = {
        "type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": [],
        "vocab": {text: i for i, text in enumerate(texts)},
    }
    return {"model": model, "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None}


def random_weights(model, torch) -> None:
    """Weights that let no part go unnoticed: matrices of 0.08, norms around 1, biases that are not 0."""
    generator = torch.Generator().manual_seed(1)
    for name, w in model.state_dict().items():
        if not w.is_floating_point():
            continue
        noise = torch.randn(w.shape, generator=generator)
        norm = "norm" in name or ".ln_" in name
        w.copy_(w + 0.2 * noise if norm else noise * (0.08 if w.ndim > 1 else 0.2))
    model.tie_weights()


def make(folder: pathlib.Path, names: list[str]) -> None:
    """Writes NAME.gguf and NAME.npz for each model.

    The model goes through a checkpoint on disk, with the names that published ones have; its parameters as they are in
    memory have to give the same tensors.
    """
    import safetensors.numpy
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    import convert

    tokens = np.random.default_rng(1).integers(3, N_VOCAB, TOKENS)
    for name in names:
        kind, values, *disguise = MODELS[name]
        hf = AutoConfig.for_model(kind, **values)
        hf._attn_implementation = "eager"
        checkpoint = folder / "checkpoint"
        with torch.no_grad():
            model = AutoModelForCausalLM.from_config(hf).eval().float()
            random_weights(model, torch)
            config = json.loads(hf.to_json_string(use_diff=False))
            state = {key: value.float().numpy() for key, value in model.state_dict().items()}
            if disguise:
                config, state = disguise[0](config, state)
                checkpoint.mkdir(exist_ok=True)
                (checkpoint / "config.json").write_text(json.dumps(config))
                arrays = {key: np.ascontiguousarray(w) for key, w in state.items()}
                safetensors.numpy.save_file(arrays, checkpoint / "model.safetensors")
            else:
                model.save_pretrained(checkpoint)
            logits = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].numpy()
        (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer()))
        path = folder / f"{name}.gguf"
        convert.convert(checkpoint, path, "f32", None)
        made = convert.constants(config) | dict(convert.tensors(config, state.items()))
        same_tensors(path, made)
        np.savez(folder / f"{name}.npz", tokens=tokens, logits=logits)
        shutil.rmtree(checkpoint)
        print(f"{name}: {len(made)} tensors, logits up to {np.abs(logits).max():.1f}", flush=True)


def same_tensors(path: pathlib.Path, made: dict[str, np.ndarray]) -> None:
    """Fails unless a file has just these tensors."""
    import gguf

    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    assert stored.keys() == made.keys(), stored.keys() ^ made.keys()
    for name, w in made.items():
        assert np.array_equal(stored[name].reshape(w.shape), w), name


def peer(folder: pathlib.Path, names: list[str]) -> None:
    """Evaluates each NAME.gguf with an f32 cache, all tokens in one batch, and compares."""
    import llama_cpp

    for name in names:
        wanted = np.load(folder / f"{name}.npz")
        try:
            llm = llama_cpp.Llama(
                str(folder / f"{name}.gguf"), n_ctx=64, n_batch=64, logits_all=True, verbose=False,
                type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, swa_full=True, n_threads=1,
            )
            llm.eval([int(t) for t in wanted["tokens"]])
        except Exception as e:
            print(f"{name}: not loaded: {e}", flush=True)
            continue
        got, logits = np.array(llm.scores[:TOKENS]), wanted["logits"]
        apart = np.abs(got - logits).max() / np.abs(logits).max()
        same = (got.argmax(1) == logits.argmax(1)).mean()
        print(f"{name}: {apart:.1e} of the greatest logit apart, {same:.0%} same top token", flush=True)
        llm.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("step", choices=["make", "peer"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in MODELS]
    if unknown:
        sys.exit(f"no model is called {unknown[0]}")
    args.folder.mkdir(parents=True, exist_ok=True)
    {"make": make, "peer": peer}[args.step](args.folder, args.names or list(MODELS))


if __name__ == "__main__":
    main()
