//! EXAONE 4: norms behind the parts instead of before, norms of query and key heads, and in the large model most layers
//! with a window; there, layers without one have no rotary embedding.
//!
//! Source: LG AI Research, "EXAONE 4.0: Unified Large Language Models Integrating Non-reasoning and Reasoning Modes"
//! (2025).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, LayerSlots};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

/// Every so many layers, one sees all positions.
const PATTERN: u32 = 4;
/// The window of the 32B model, for files that do not say; it is known by its number of layers.
const WINDOW_OF_32B: u32 = 4096;
const LAYERS_OF_32B: u32 = 64;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("exaone4");
    let config = Config::read(keys, NormKind::Rms, &["attention.sliding_window"])?;
    let default = (config.n_layer == LAYERS_OF_32B).then_some(WINDOW_OF_32B);
    let window = keys.window()?.or(default);
    let windowed = match window {
        Some(_) => keys.windowed_layers(config.n_layer, PATTERN)?,
        None => vec![false; config.n_layer as usize],
    };
    let scale = config.attention_scale();

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = LayerSlots { attn_norm: x, ffn_norm: x, ..b.layer_slots() };
    for (layer, windowed) in (0..).zip(windowed) {
        b.enter_layer(layer);

        b.qkv(x, s)?;
        b.head_norms(s)?;
        if windowed || window.is_none() {
            b.rope(s.q, rope);
            b.rope(s.k, rope);
        }
        let window = window.filter(|_| windowed);
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.norm("post_attention_norm", s.attn_output, s.attn_output)?;
        b.add(x, s.attn_output);

        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.norm("post_ffw_norm", s.ffn_down, s.ffn_down)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
