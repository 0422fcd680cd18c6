//! Llama: Llama 2 and 3, SmolLM2, Mistral, Mixtral and what else is shaped like them.
//!
//! Pre-norm layers of grouped-query attention with rotary embeddings and a SwiGLU feed-forward part.
//! Source: Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, Mixture, Usual};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("llama");
    let config = Config::read(keys, NormKind::Rms, &["expert_count", "attention.sliding_window"])?;
    let has_experts = keys.count("expert_count", 0..=u32::MAX)?.is_some_and(|n| n > 0);
    // Mistral 7B v0.1 has one.
    let window = keys.window()?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    // Converters reorder the rows of q and k so that the two elements of a pair are neighbours.
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    let mixture = if has_experts { Some(Mixture::read(keys, &mut b, Usual::MIXTRAL)?) } else { None };
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        match &mixture {
            Some(mixture) => b.mixture(mixture, s)?,
            None => b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?,
        }
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
