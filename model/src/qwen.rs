//! Qwen 2, 2.5 and 3: Llama with biases of queries, keys and values, or instead with norms of each query and key head.
//!
//! Sources: Qwen Team, "Qwen2 Technical Report" (2024) and "Qwen3 Technical Report" (2025).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn qwen2(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "qwen2", false)
}

pub(crate) fn qwen3(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "qwen3", true)
}

fn build(file: File<'_>, architecture: &'static str, head_norms: bool) -> Result<Loaded, ModelError> {
    let keys = file.keys(architecture);
    let config = Config::read(keys, NormKind::Rms, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        if head_norms {
            b.head_norms(s)?;
        }
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
