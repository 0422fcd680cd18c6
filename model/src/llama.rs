//! Llama: Llama 2 and 3, SmolLM2, Mistral and what else is shaped like them.
//!
//! Pre-norm layers of grouped-query attention with rotary embeddings and a SwiGLU feed-forward part.
//! Source: Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023).

use llamay_gguf::Gguf;
use llamay_plan::{Nonlinearity, RopePairs};

use crate::builder::Builder;
use crate::config::{Config, Keys};
use crate::rope::{self, Scaling};
use crate::{Loaded, ModelError};

/// The base of files that do not give one: that of Llama 2.
const ROPE_BASE: f32 = 10_000.0;

pub(crate) fn build(gguf: &Gguf) -> Result<Loaded, ModelError> {
    let keys = Keys::new(gguf.metadata(), "llama");
    let config = Config::read(keys)?;
    // Mistral 7B v0.1; 0 in files whose model could have a window and has none.
    let window = keys.count("attention.sliding_window", 0..=u32::MAX)?.filter(|w| *w > 0);
    let base = rope::base(keys, "rope.freq_base")?.unwrap_or(ROPE_BASE);
    let scaling = Scaling::read(keys, config.n_ctx_train)?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(gguf, config);
    // Llama 3.1 stretches long wavelengths more than short ones: one divisor a pair.
    let divisors = b.tensors.positive_constants("rope_freqs.weight", b.config.n_rot / 2)?;
    // Converters reorder the rows of q and k so that the two elements of a pair are neighbours.
    let rope = rope::table(&b.config, RopePairs::Interleaved, base, scaling, divisors.as_deref());
    let rope = b.rope_table(rope);

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.rms_norm("attn_norm", x, 1, s.attn_norm)?;
        b.linear(s.attn_norm, &[("attn_q", s.q), ("attn_k", s.k), ("attn_v", s.v)])?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, scale, window);
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.rms_norm("ffn_norm", x, 1, s.ffn_norm)?;
        b.gated_ffn(s, Nonlinearity::Silu)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
