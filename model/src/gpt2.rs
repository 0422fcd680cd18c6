//! GPT-2: learned positions, LayerNorms, biases everywhere, and a feed-forward part of two matrices. StarCoder and
//! SantaCoder are the same with one head of keys and values for all queries, which their files say.
//!
//! Sources: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019); Li et al., "StarCoder: may the
//! source be with you!" (2023).

use llamay_plan::{Nonlinearity, NormKind};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn gpt2(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "gpt2")
}

pub(crate) fn starcoder(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "starcoder")
}

fn build(file: File<'_>, name: &'static str) -> Result<Loaded, ModelError> {
    let config = Config::read(file.keys(name), NormKind::Layer, &[])?;
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
