//! OLMo 1: Llama with layer norms that have no weights.
//!
//! Source: Groeneveld et al., "OLMo: Accelerating the Science of Language Models" (2024).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("olmo");
    let config = Config::read(keys, NormKind::Layer, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.plain_norm(x, s.attn_norm);
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.plain_norm(x, s.ffn_norm);
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add(x, s.ffn_down);
    }
    b.plain_head(x)?;
    b.finish()
}
