//! gpt-oss: attention sinks, windows in every second layer, biases everywhere, experts with a clipped gate.
//!
//! Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (2025).

use llamay_plan::{Gating, NormKind, RopePairs, Scoring};

use crate::builder::{Attention, Builder, Mixture, Usual};
use crate::config::Config;
use crate::rope::{self, Scaling};
use crate::{File, Loaded, ModelError};

/// Every so many layers, one sees all positions; the first layer has a window.
const PATTERN: u32 = 2;
/// Experts are weighed against those that are chosen with them.
const MIXTURE: Usual =
    Usual { scoring: Scoring::SoftmaxOfChosen, gating: Gating::ClippedSwiglu, ..Usual::MIXTRAL };

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("gpt-oss");
    let config = Config::read(keys, NormKind::Rms, &["expert_count", "attention.sliding_window"])?;
    let window = keys.need_count("attention.sliding_window", 1..=u32::MAX)? as u32;
    let windowed = keys.windowed_layers(config.n_layer, PATTERN)?;
    let global_base = rope::base(keys, "rope.freq_base")?.unwrap_or(rope::BASE);
    let local_base = rope::base(keys, "rope.freq_base_swa")?.unwrap_or(global_base);
    let scaling = Scaling::read(keys, config.n_ctx_train)?.unrounded();
    let scale = config.attention_scale();

    let mut b = Builder::new(file, config);
    // Layers with a window are stretched as all others are.
    let global_rope = b.rope_table(rope::table(&b.config, RopePairs::Halves, global_base, scaling, None));
    let local_rope = b.rope_table(rope::table(&b.config, RopePairs::Halves, local_base, scaling, None));
    let mixture = Mixture::read(keys, &mut b, MIXTURE)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for (layer, windowed) in (0..).zip(windowed) {
        let (rope, window) = if windowed { (local_rope, Some(window)) } else { (global_rope, None) };
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention { window, sinks: true, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        // In spite of its name, this is the norm before the feed-forward part.
        b.norm("post_attention_norm", x, s.ffn_norm)?;
        b.mixture(&mixture, s)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
