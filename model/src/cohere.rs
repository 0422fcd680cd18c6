//! Cohere: Command R and R+, Aya (`command-r`), Command R7B and A (`cohere2`).
//!
//! Attention and a gated feed-forward part side by side behind one norm without bias, and a factor of the logits. R+ has
//! norms of queries and keys, with weights of each head's own. R7B and A have windows in three of four layers, and no
//! positions at all in the fourth.
//! Source: Cohere, "Command A: An Enterprise-Ready Large Language Model" (2025).

use std::ops::RangeInclusive;

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, LayerSlots};
use crate::config::{Config, Keys};
use crate::rope;
use crate::{File, Loaded, ModelError};

/// Every so many layers, one of `cohere2` sees all positions.
const PATTERN: u32 = 4;
const LOGIT_SCALES: RangeInclusive<f32> = 0.0..=1e6;

pub(crate) fn command_r(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("command-r");
    let window = keys.window()?;
    // The first files had no such key, and no factor.
    let logit_scale = keys.float("logit_scale", LOGIT_SCALES)?.unwrap_or(0.0);
    build(file, keys, logit_scale, |config| Ok(vec![(true, window); config.n_layer as usize]))
}

pub(crate) fn cohere2(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("cohere2");
    let window = keys.need_count("attention.sliding_window", 1..=u32::MAX)? as u32;
    let logit_scale = keys.need_float("logit_scale", LOGIT_SCALES)?;
    let base = rope::base(keys, "rope.freq_base")?.unwrap_or(rope::BASE);
    keys.refuse("rope.freq_base_swa", "a rope base of windowed layers alone", &[base])?;
    build(file, keys, logit_scale, |config| {
        let windowed = keys.windowed_layers(config.n_layer, PATTERN)?.into_iter();
        Ok(windowed.map(|windowed| (windowed, windowed.then_some(window))).collect())
    })
}

/// `layers` says of each layer whether it has a rotary embedding, and its window. A `logit_scale` of 0 is none.
fn build(
    file: File<'_>,
    keys: Keys<'_>,
    logit_scale: f32,
    layers: impl Fn(&Config) -> Result<Vec<(bool, Option<u32>)>, ModelError>,
) -> Result<Loaded, ModelError> {
    let config = Config::read(keys, NormKind::Layer, &["logit_scale", "attention.sliding_window"])?;
    let layers = layers(&config)?;
    let scale = config.attention_scale();

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    // One norm for both parts.
    let s = LayerSlots { ffn_norm: s.attn_norm, ..s };
    for (layer, (rotates, window)) in (0..).zip(layers) {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        if b.has_head_norms() {
            b.norms_of_each_head(s)?;
        }
        if rotates {
            b.rope(s.q, rope);
            b.rope(s.k, rope);
        }
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add(x, s.attn_output);
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    if logit_scale != 0.0 {
        b.scale_logits(logit_scale);
    }
    b.finish()
}
