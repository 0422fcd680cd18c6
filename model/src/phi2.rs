//! Phi 1, 1.5 and 2: attention and feed-forward part side by side behind one norm, biases everywhere, a part of each head
//! turns.
//!
//! Source: Li et al., "Textbooks Are All You Need II: phi-1.5 technical report" (2023).

use llamay_plan::{Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("phi2");
    let config = Config::read(keys, NormKind::Layer, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.plain_ffn(s.attn_norm, s, Nonlinearity::GeluTanh)?;
        b.add(x, s.attn_output);
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
