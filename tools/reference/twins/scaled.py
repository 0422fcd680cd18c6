"""Models with multipliers in their residual stream, or with long contexts."""

from transformers import GraniteConfig, Ministral3Config, Phi3Config

from edits import with_keys
from twins import disguises
from twins.base import Twin, rope, sizes


def long_rope(n_pairs: int, original: int, partial: float = 1.0) -> dict:
    """Divisors of both sets, far enough apart that a wrong choice shows."""
    return dict(
        rope_parameters=rope(
            10000.0, "longrope", short_factor=[1.0 + 0.02 * i for i in range(n_pairs)],
            long_factor=[1.0 + 0.5 * i for i in range(n_pairs)], partial_rotary_factor=partial,
            original_max_position_embeddings=original,
        ),
        original_max_position_embeddings=original,
    )


PHI3 = [
    # No scaling, and a window as Phi-3-mini-4k.
    Twin("phi3", Phi3Config(**sizes(256, 2, 4, 4, 256), rope_parameters=rope(10000.0), sliding_window=12), "spm"),
    # All tokens within the original length. Readers choose by the context, so the file must not promise a longer one.
    Twin(
        "phi3-short", Phi3Config(**sizes(256, 2, 4, 2, 256), **long_rope(32, 128)), "spm",
        edit=with_keys(context_length=128),
    ),
    # A prompt beyond the original length, and heads that turn by three quarters, as Phi-4-mini.
    Twin("phi3-long", Phi3Config(**sizes(256, 2, 4, 2, 512), **long_rope(24, 16, 0.75), tie_word_embeddings=True)),
]

TWINS = [
    *PHI3,
    # Four multipliers, none of them neutral.
    Twin("granite", GraniteConfig(
        **sizes(256, 2, 4, 2, 256), rope_parameters=rope(10000.0), embedding_multiplier=6.0, residual_multiplier=0.22,
        attention_multiplier=0.0625, logits_scaling=0.5, tie_word_embeddings=True,
    )),
    # Granite's multipliers are those of MiniCPM by other names.
    Twin("minicpm", GraniteConfig(
        **sizes(256, 2, 4, 4, 256), rope_parameters=rope(10000.0), embedding_multiplier=12.0,
        residual_multiplier=1.4 / 2**0.5, attention_multiplier=64**-0.5, logits_scaling=2.0, tie_word_embeddings=True,
    ), "spm", disguises.minicpm),
    # YaRN, and queries that grow with the position.
    Twin("ministral3", Ministral3Config(
        **sizes(256, 2, 4, 2, 256), head_dim=64, rope_parameters=rope(
            1e6, "yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0,
            mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
        ),
    )),
]
