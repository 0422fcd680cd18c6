"""Models with layer norms, most with biases: learned positions, parallel residuals, plain feed-forward parts."""

from transformers import (
    Cohere2Config,
    CohereConfig,
    FalconConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    NemotronConfig,
    OlmoConfig,
    PhiConfig,
    StableLmConfig,
    Starcoder2Config,
)

from edits import renamed
from twins.base import N_VOCAB, Twin, rope, sizes

GPT = dict(
    vocab_size=N_VOCAB, n_positions=128, n_embd=256, n_layer=2, n_head=4, n_inner=512,
    bos_token_id=1, eos_token_id=2, pad_token_id=None,
)
NEOX = {k: v for k, v in sizes(256, 2, 4, 4, 512).items() if k != "num_key_value_heads"}
FALCON = dict(
    vocab_size=N_VOCAB, num_hidden_layers=2, max_position_embeddings=512, rope_parameters=rope(10000.0),
    bos_token_id=1, eos_token_id=2, pad_token_id=None,
)

STABLELM = [
    # 1.6B: biases of queries, keys and values; a quarter of each head turns.
    Twin("stablelm", StableLmConfig(
        **sizes(256, 2, 4, 4, 256), use_qkv_bias=True, rope_parameters=rope(10000.0, partial_rotary_factor=0.25),
    )),
    # 12B: norms with weights of each head's own, one norm for both parallel parts.
    Twin("stablelm-parallel", StableLmConfig(
        **sizes(256, 2, 4, 2, 256), qk_layernorm=True, use_parallel_residual=True,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
    )),
]

# Llama with layer norms, which is also what StableLM is without its options.
ORION = Twin("orion", StableLmConfig(
    **sizes(160, 2, 4, 2, 224), rope_parameters=rope(10000.0, partial_rotary_factor=1.0),
), "spm", edit=renamed("orion"))

PARALLEL = [
    # 7B: one norm for both parts, one key head.
    Twin("falcon-7b", FalconConfig(
        **FALCON, hidden_size=192, num_attention_heads=3, multi_query=True, parallel_attn=True, num_kv_heads=1,
        ffn_hidden_size=256,
    )),
    # 40B: a norm for each part, grouped keys.
    Twin("falcon-40b", FalconConfig(
        **FALCON, hidden_size=256, num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2,
        tie_word_embeddings=False,
    )),
    Twin("gptneox", GPTNeoXConfig(**NEOX, rope_parameters=rope(10000.0, partial_rotary_factor=0.25))),
    Twin("gptneox-sequential", GPTNeoXConfig(
        **NEOX, rope_parameters=rope(10000.0, partial_rotary_factor=1.0), use_parallel_residual=False,
    )),
    Twin("phi2", PhiConfig(**sizes(256, 2, 4, 4, 512), rope_parameters=rope(10000.0, partial_rotary_factor=0.5))),
    # Pairs of neighbours turn, and the logits have a factor.
    Twin("command-r", CohereConfig(**sizes(256, 2, 4, 2, 256), rope_parameters=rope(10000.0), logit_scale=0.25)),
    # Command R+: norms with weights of each head's own.
    Twin("command-r-plus", CohereConfig(
        **sizes(96, 2, 3, 1, 160), rope_parameters=rope(75000.0), logit_scale=0.5, use_qk_norm=True,
    )),
    # Windows with rotary positions, then a layer with neither.
    Twin("cohere2", Cohere2Config(
        **sizes(256, 4, 4, 2, 256), rope_parameters=rope(50000.0), logit_scale=0.25, sliding_window=8,
    )),
]

TWINS = [
    Twin("gpt2", GPT2Config(**GPT)),
    # One key head and learned positions.
    Twin("starcoder", GPTBigCodeConfig(**GPT)),
    Twin("starcoder2", Starcoder2Config(**sizes(256, 2, 4, 2, 512), rope_parameters=rope(10000.0))),
    # Norms of `1 + w`, squares of what is positive, half of each head turns.
    Twin("nemotron", NemotronConfig(
        **sizes(256, 2, 4, 2, 512), rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
    ), "spm"),
    # Norms without weights.
    Twin("olmo", OlmoConfig(**sizes(256, 2, 4, 2, 256), rope_parameters=rope(10000.0))),
    *STABLELM,
    ORION,
    *PARALLEL,
]
