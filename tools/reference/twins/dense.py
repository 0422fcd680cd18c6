"""Dense models with rotary positions, RMS norms and gated feed-forward parts."""

from transformers import (
    ArceeConfig,
    Ernie4_5Config,
    Exaone4Config,
    ExaoneConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    HunYuanDenseV1Config,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Qwen2Config,
    Qwen3Config,
    SeedOssConfig,
    SmolLM3Config,
)

from edits import double_divisors, with_keys
from twins import disguises
from twins.base import Twin, rope, sizes


def llama(*size: int, parameters: dict, **more) -> LlamaConfig:
    return LlamaConfig(**sizes(*size), rope_parameters=parameters, rms_norm_eps=1e-5, **more)


LLAMA = [
    # Grouped queries and a tied head, as SmolLM2; the feed-forward part wider than the rest.
    Twin("llama-gqa", llama(256, 2, 4, 2, 512, parameters=rope(10000.0), tie_word_embeddings=True)),
    # A key and a value head for each query head, of an uncommon length; no rows of whole 256-wide blocks.
    Twin("llama-mha", llama(160, 2, 4, 4, 224, parameters=rope(10000.0))),
    # Biases of all seven matrices.
    Twin("llama-bias", llama(256, 2, 4, 2, 256, parameters=rope(10000.0), attention_bias=True, mlp_bias=True)),
    # Linear scaling, and heads that together are wider than the residual stream.
    Twin("llama-linear", llama(
        96, 2, 3, 1, 160, parameters=rope(10000.0, "linear", factor=4.0), head_dim=64, tie_word_embeddings=True,
    )),
    # Heads that turn by half; the transformers library has no such Llama, so there is no reference.
    Twin(
        "llama-partial-rope", llama(96, 2, 3, 3, 96, parameters=rope(10000.0), tie_word_embeddings=True),
        reference=False, edit=with_keys(rope__dimension_count=16),
    ),
    # Llama 3.1's frequencies as a tensor of divisors, and one key head for all queries.
    Twin("llama3-rope", llama(
        256, 2, 4, 1, 256, tie_word_embeddings=True, parameters=rope(
            500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ), edit=double_divisors(8.0, 1.0, 4.0, 64)),
    # YaRN, with a ramp that ends within the head.
    Twin("llama-yarn", llama(
        256, 2, 4, 2, 256, tie_word_embeddings=True, parameters=rope(
            10000.0, "yarn", factor=4.0, beta_fast=8.0, original_max_position_embeddings=128,
        ),
    )),
    # Mistral's window.
    Twin("mistral-window", MistralConfig(
        **sizes(256, 3, 8, 2, 256), rope_parameters=rope(10000.0), rms_norm_eps=1e-5, sliding_window=12,
    ), "spm"),
]

GEMMA = [
    # Every second layer sees all.
    Twin("gemma3", Gemma3TextConfig(
        **sizes(256, 3, 4, 2, 512), head_dim=64, query_pre_attn_scalar=64, sliding_window=8, sliding_window_pattern=2,
        rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)},
    ), "spm"),
    # The usual pattern of six, global layers scaled as in the larger models, and a score factor of its own.
    Twin("gemma3-deep", Gemma3TextConfig(
        **sizes(96, 7, 4, 1, 160), head_dim=32, query_pre_attn_scalar=24, sliding_window=8,
        rope_parameters={"full_attention": rope(1e6, "linear", factor=8.0), "sliding_attention": rope(1e4)},
    ), "spm"),
    # One key head, and heads that together are wider than the residual stream.
    Twin("gemma", GemmaConfig(
        **sizes(256, 2, 4, 1, 512), head_dim=96, rope_parameters=rope(10000.0), hidden_activation="gelu_pytorch_tanh",
    ), "spm"),
    # Both caps low enough to bend the scores and the logits.
    Twin("gemma2", Gemma2Config(
        **sizes(256, 3, 4, 2, 512), head_dim=64, query_pre_attn_scalar=64, sliding_window=8,
        rope_parameters=rope(10000.0), attn_logit_softcapping=4.0, final_logit_softcapping=6.0,
    ), "spm"),
    # The caps of all published models.
    Twin("gemma2-usual", Gemma2Config(
        **sizes(96, 2, 3, 3, 160), head_dim=32, query_pre_attn_scalar=32, sliding_window=8,
        rope_parameters=rope(10000.0),
    ), "spm"),
]

QWEN = [
    Twin("qwen2", Qwen2Config(**sizes(256, 2, 4, 2, 512), rope_parameters=rope(1e6), tie_word_embeddings=True)),
    # Heads of a length that is not the hidden size by their number.
    Twin("qwen3", Qwen3Config(**sizes(256, 2, 4, 2, 256), head_dim=96, rope_parameters=rope(1e6))),
]

OTHERS = [
    # Norms of whole rows of queries and keys, and norms behind the parts instead of before.
    Twin("olmo2", Olmo2Config(**sizes(256, 2, 4, 2, 256), rope_parameters=rope(500000.0))),
    # The same with a window in three of four layers.
    Twin("olmo3", Olmo3Config(
        **sizes(96, 4, 3, 3, 160), sliding_window=8,
        rope_parameters={"full_attention": rope(500000.0), "sliding_attention": rope(500000.0)},
    )),
    # Every fourth layer without positions.
    Twin("smollm3", SmolLM3Config(**sizes(256, 4, 4, 2, 256), rope_parameters=rope(10000.0), no_rope_layer_interval=4)),
    # Names and fused order of InternLM2, whose mathematics is Llama's.
    Twin("internlm2", llama(256, 2, 4, 2, 256, parameters=rope(1e6)), disguise=disguises.internlm2),
    Twin("exaone", ExaoneConfig(
        **sizes(256, 2, 4, 2, 256), rope_parameters=rope(
            500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    )),
    # Three layers with a window and rotary positions, then one with neither.
    Twin("exaone4", Exaone4Config(
        **sizes(256, 4, 4, 2, 256), rope_parameters=rope(1e6), sliding_window=8, sliding_window_pattern=4,
    )),
    # The smaller model: no window, rotary positions everywhere.
    Twin("exaone4-full", Exaone4Config(
        **sizes(96, 2, 3, 3, 160), rope_parameters=rope(1e6), sliding_window=None, tie_word_embeddings=True,
        layer_types=["full_attention"] * 2,
    )),
    # Half of each head turns, in pairs of neighbours; norms before and behind.
    Twin("glm4", Glm4Config(
        **sizes(256, 2, 4, 2, 256), head_dim=64, attention_bias=True,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
    )),
    # GLM-4 of 2024: the same without the norms behind.
    Twin("chatglm", GlmConfig(
        **sizes(256, 2, 4, 2, 256), head_dim=64, attention_bias=True,
        rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
    )),
    Twin("ernie4_5", Ernie4_5Config(**sizes(256, 2, 4, 2, 256), head_dim=64, rope_parameters=rope(500000.0))),
    # Norms of the heads behind the rotation.
    Twin("hunyuan-dense", HunYuanDenseV1Config(
        **sizes(256, 2, 4, 2, 256), head_dim=64, rope_parameters=rope(10000.0), tie_word_embeddings=True,
    )),
    # The square of what is positive, and no gate.
    Twin("arcee", ArceeConfig(**sizes(256, 2, 4, 2, 512), rope_parameters=rope(10000.0))),
    # Biases of queries, keys and values alone; norms named after what they follow.
    Twin("seed_oss", SeedOssConfig(
        **sizes(256, 2, 4, 2, 256), head_dim=96, rope_parameters=rope(1e7), attention_bias=True,
        attention_out_bias=False,
    )),
    # A Llama in all but its vocabulary.
    Twin("deepseek-llm", llama(96, 3, 4, 4, 224, parameters=rope(10000.0))),
]

TWINS = [*LLAMA, *GEMMA, *QWEN, *OTHERS]
