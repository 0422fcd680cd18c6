//! Falcon: attention and feed-forward part side by side, behind one norm (7B, 11B) or one each (40B, 180B).
//!
//! Source: Almazrouei et al., "The Falcon Series of Open Language Models" (2023).

use llamay_plan::{Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("falcon");
    let config = Config::read(keys, NormKind::Layer, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        // Where there are two norms, files call the feed-forward part's `attn_norm` and attention's `attn_norm_2`.
        let two_norms = b.has_norm("attn_norm_2");
        b.norm(if two_norms { "attn_norm_2" } else { "attn_norm" }, x, s.attn_norm)?;
        let ffn_input = if two_norms { s.ffn_norm } else { s.attn_norm };
        if two_norms {
            b.norm("attn_norm", x, ffn_input)?;
        }

        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.plain_ffn(ffn_input, s, Nonlinearity::Gelu)?;
        b.add(x, s.attn_output);
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
