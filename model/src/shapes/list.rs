//! The generated models. Those with a twin in `tools/reference/make.py` have reference logits of the same name.

use super::{Extra, Shape, VocabularyKind};

/// What most shapes share: one width for which all formats have whole blocks.
const LLAMA: Shape = Shape {
    name: "llama",
    architecture: "llama",
    n_embd: 256,
    n_layer: 2,
    n_head: 4,
    n_head_kv: 2,
    head_dim: 64,
    n_ff: 256,
    eps: 1e-5,
    rope_base: 10_000.0,
    tied: false,
    biases: false,
    llama3_rope: None,
    vocabulary: VocabularyKind::Bpe,
    extra: &[],
};

const GEMMA3: Shape = Shape {
    name: "gemma3",
    architecture: "gemma3",
    n_layer: 3,
    eps: 1e-6,
    rope_base: 1_000_000.0,
    tied: true,
    vocabulary: VocabularyKind::Spm,
    ..LLAMA
};

/// Every generated model. Windows are shorter than the reference prompts.
pub(super) const SHAPES: &[Shape] = &[
    // Grouped queries and a tied head, as SmolLM2; the feed-forward part wider than the rest.
    Shape { name: "llama-gqa", n_ff: 512, tied: true, ..LLAMA },
    // A key and a value head for each query head, of an uncommon length; no rows of whole 256-wide blocks.
    Shape { name: "llama-mha", n_embd: 160, n_head_kv: 4, head_dim: 40, n_ff: 224, ..LLAMA },
    // Biases of all seven matrices.
    Shape { name: "llama-bias", biases: true, ..LLAMA },
    // Linear scaling, and heads that together are wider than the residual stream.
    Shape {
        name: "llama-linear",
        n_embd: 96,
        n_head: 3,
        n_head_kv: 1,
        n_ff: 160,
        tied: true,
        extra: &[("rope.scaling.type", Extra::Str("linear")), ("rope.scaling.factor", Extra::F32(4.0))],
        ..LLAMA
    },
    // Heads that turn by half; the transformers library has no such Llama, so there is no reference.
    Shape {
        name: "llama-partial-rope",
        n_embd: 96,
        n_head: 3,
        n_head_kv: 3,
        head_dim: 32,
        n_ff: 96,
        tied: true,
        extra: &[("rope.dimension_count", Extra::U32(16))],
        ..LLAMA
    },
    // Llama 3.1's frequencies as a tensor of divisors, and one key head for all queries.
    Shape {
        name: "llama3-rope",
        n_head_kv: 1,
        rope_base: 500_000.0,
        tied: true,
        llama3_rope: Some(super::Llama3Rope { factor: 8.0, low: 1.0, high: 4.0, n_ctx_original: 64.0 }),
        ..LLAMA
    },
    // YaRN, with a ramp that ends within the head.
    Shape {
        name: "llama-yarn",
        tied: true,
        extra: &[
            ("rope.scaling.type", Extra::Str("yarn")),
            ("rope.scaling.factor", Extra::F32(4.0)),
            ("rope.scaling.original_context_length", Extra::U32(128)),
            ("rope.scaling.yarn_beta_fast", Extra::F32(8.0)),
        ],
        ..LLAMA
    },
    // Mistral's window.
    Shape {
        name: "mistral-window",
        n_layer: 3,
        n_head: 8,
        head_dim: 32,
        vocabulary: VocabularyKind::Spm,
        extra: &[("attention.sliding_window", Extra::U32(12))],
        ..LLAMA
    },
    // Every second layer sees all.
    Shape {
        name: "gemma3",
        n_ff: 512,
        extra: &[
            ("attention.sliding_window", Extra::U32(8)),
            ("attention.sliding_window_pattern", Extra::U32(2)),
        ],
        ..GEMMA3
    },
    // The usual pattern of six, global layers scaled as in the larger models, and a score factor of its own.
    Shape {
        name: "gemma3-deep",
        n_embd: 96,
        n_layer: 7,
        n_head_kv: 1,
        head_dim: 32,
        n_ff: 160,
        extra: &[
            ("attention.sliding_window", Extra::U32(8)),
            // 1 / sqrt(24)
            ("attention.scale", Extra::F32(0.204_124_15)),
            ("rope.scaling.type", Extra::Str("linear")),
            ("rope.scaling.factor", Extra::F32(8.0)),
        ],
        ..GEMMA3
    },
];
