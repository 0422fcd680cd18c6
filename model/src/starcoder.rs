//! StarCoder and SantaCoder: GPT-2 with one head of keys and values for all queries.
//!
//! Source: Li et al., "StarCoder: may the source be with you!" (2023).

use llamay_plan::{Nonlinearity, NormKind};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("starcoder");
    let config = Config::read(keys, NormKind::Layer, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let x = b.embed(1.0)?;
    b.add_positions(x)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.plain_ffn(s.ffn_norm, s, Nonlinearity::GeluTanh)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
