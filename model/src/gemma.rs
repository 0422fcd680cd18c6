//! Gemma: Llama with a GELU for the gate, and embeddings that grow with the root of their length.
//!
//! Source: Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology" (2024). Files hold the norms' weights
//! with the model's `1 +` in them.

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("gemma");
    let config = Config::read(keys, NormKind::Rms, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed((b.config.n_embd as f64).sqrt() as f32)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::GeluTanh))?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
