//! StableLM 3B, 2 1.6B and 2 12B: LayerNorms, heads that turn in part, and in the last parallel parts and head norms.
//!
//! Source: Bellagente et al., "Stable LM 2 1.6B Technical Report" (2024).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, LayerSlots};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("stablelm");
    // Files of the sequential 3B model, too, say that it is parallel. What tells is whether a second norm is there.
    let config = Config::read(keys, NormKind::Layer, &["use_parallel_residual"])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        if b.has_head_norms() {
            b.norms_of_each_head(s)?;
        }
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        if b.has_norm("ffn_norm") {
            b.norm("ffn_norm", x, s.ffn_norm)?;
            b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        } else {
            b.gated_ffn(LayerSlots { ffn_norm: s.attn_norm, ..s }, Gating::Product(Nonlinearity::Silu))?;
        }
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
