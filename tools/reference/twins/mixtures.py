"""Mixtures of experts."""

from transformers import (
    AfmoeConfig,
    Dots1Config,
    Ernie4_5_MoeConfig,
    Glm4MoeConfig,
    GptOssConfig,
    GraniteMoeConfig,
    GraniteMoeSharedConfig,
    HunYuanMoEV1Config,
    MiniMaxM2Config,
    MixtralConfig,
    OlmoeConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

from twins import disguises
from twins.base import Twin, rope, sizes

TWINS = [
    Twin("mixtral", MixtralConfig(
        **sizes(256, 2, 4, 2, 256), rope_parameters=rope(1e6), num_local_experts=4, num_experts_per_tok=2,
    ), "spm"),
    # A shared expert with a gate of its own; the weights of the chosen experts do not add up to 1.
    Twin("qwen2moe", Qwen2MoeConfig(
        **sizes(256, 2, 4, 2, 512), rope_parameters=rope(1e6), num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=256, shared_expert_intermediate_size=512, norm_topk_prob=False,
    )),
    Twin("qwen3moe", Qwen3MoeConfig(
        **sizes(256, 2, 4, 2, 512), head_dim=96, rope_parameters=rope(1e6), num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=256, norm_topk_prob=True,
    )),
    # Sinks, alternating windows, biases of router and experts, clipped gates, YaRN that rounds no boundary.
    Twin("gpt-oss", GptOssConfig(
        **sizes(256, 3, 4, 2, 256), head_dim=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        rope_parameters=rope(
            150000.0, "yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=64,
        ),
    )),
    # Sinks alone: windows that nothing reaches, one key head, and no stretch to speak of.
    Twin("gpt-oss-sinks", GptOssConfig(
        **sizes(96, 2, 3, 1, 96), head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=512,
        rope_parameters=rope(
            10000.0, "yarn", factor=1.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=512,
        ),
    )),
    Twin("olmoe", OlmoeConfig(
        **sizes(128, 2, 4, 4, 96), rope_parameters=rope(10000.0), num_experts=8, num_experts_per_tok=3,
    )),
    Twin("granitemoe", GraniteMoeConfig(
        **sizes(256, 2, 4, 2, 256), rope_parameters=rope(10000.0), num_local_experts=4, num_experts_per_tok=2,
        embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.0625, logits_scaling=0.5,
        tie_word_embeddings=True,
    )),
    Twin("granitemoe-shared", GraniteMoeSharedConfig(
        **sizes(256, 2, 4, 2, 256), rope_parameters=rope(10000.0), num_local_experts=4, num_experts_per_tok=2,
        embedding_multiplier=6.0, residual_multiplier=0.5, attention_multiplier=0.0625, logits_scaling=0.5,
        shared_intermediate_size=512, tie_word_embeddings=True,
    )),
    # A dense layer first; sigmoid scores with a correction that chooses and does not weigh.
    Twin("glm4moe", Glm4MoeConfig(
        **sizes(256, 2, 4, 2, 512), head_dim=64, rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        moe_intermediate_size=256, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
        first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
        num_mtp_layers=0,
    )),
    Twin("dots1", Dots1Config(
        **sizes(96, 3, 3, 3, 160), head_dim=32, rope_parameters=rope(10000.0), moe_intermediate_size=64,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, sliding_window=None,
    )),
    # A dense layer first; softmax scores with a correction that chooses and does not weigh.
    Twin("ernie4_5-moe", Ernie4_5_MoeConfig(
        **sizes(160, 3, 4, 2, 224), head_dim=64, rope_parameters=rope(500000.0), moe_intermediate_size=96,
        moe_num_experts=6, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1,
    )),
    Twin("hunyuan-moe", HunYuanMoEV1Config(
        **sizes(256, 2, 4, 2, 256), head_dim=64, rope_parameters=rope(10000.0), num_experts=4, moe_topk=2,
        tie_word_embeddings=True,
    )),
    # Norms of whole rows of queries and keys, half of each head turns, sigmoid scores with a correction.
    Twin("minimax-m2", MiniMaxM2Config(
        **sizes(160, 2, 4, 2, 96), head_dim=64, rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        num_local_experts=6, num_experts_per_tok=2,
    )),
    # Gated attention, norms on both sides, windows where heads rotate, a dense layer first, corrected sigmoid scores.
    Twin("afmoe", AfmoeConfig(
        **sizes(96, 4, 3, 1, 160), head_dim=32, rope_parameters=rope(10000.0), moe_intermediate_size=64, num_experts=6,
        num_experts_per_tok=2, num_shared_experts=2, num_dense_layers=1, sliding_window=8, route_scale=2.5,
        mup_enabled=True,
    )),
    # Shared experts without a gate; transformers computes it as a Granite without multipliers.
    Twin("bailingmoe", GraniteMoeSharedConfig(
        **sizes(96, 2, 3, 1, 64), rope_parameters=rope(10000.0), num_local_experts=4, num_experts_per_tok=2,
        attention_multiplier=32**-0.5, shared_intermediate_size=128,
    ), disguise=disguises.bailing),
]
