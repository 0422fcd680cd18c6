//! Arcee Trinity (AFMoE): attention whose result passes a gate, a norm before and behind each part, windows in most layers
//! and no rotary embedding in the others, experts behind leading dense layers.
//!
//! Sources: Arcee AI, "Trinity" (2025); the gate is of Qiu et al., "Gated Attention for Large Language Models" (2025).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs, Scoring};

use crate::builder::{Attention, Builder, Mixture, Usual, Width};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

/// Every so many layers, one sees all positions.
const PATTERN: u32 = 4;
const MIXTURE: Usual =
    Usual { scoring: Scoring::Sigmoid, choice_bias: true, shared: Some(Width::Expert), ..Usual::MIXTRAL };
const KEYS: &[&str] =
    &["expert_count", "expert_shared_count", "leading_dense_block_count", "attention.sliding_window"];

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("afmoe");
    let config = Config::read(keys, NormKind::Rms, KEYS)?;
    let window = keys.need_count("attention.sliding_window", 1..=u32::MAX)? as u32;
    let windowed = keys.windowed_layers(config.n_layer, PATTERN)?;
    let scale = config.attention_scale();

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;
    let mixture = Mixture::read(keys, &mut b, MIXTURE)?;

    let x = b.embed((b.config.n_embd as f64).sqrt() as f32)?;
    let s = b.layer_slots();
    let attn_gate = b.slot("attn_gate", b.config.n_head * b.config.head_dim);
    for (layer, windowed) in (0..).zip(windowed) {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.head_norms(s)?;
        if windowed {
            b.rope(s.q, rope);
            b.rope(s.k, rope);
        }
        b.attend(s, Attention { window: windowed.then_some(window), ..Attention::scaled(scale) })?;
        b.linear(s.attn_norm, &[("attn_gate", attn_gate)])?;
        b.gate(attn_gate, s.attn, Gating::Product(Nonlinearity::Sigmoid));
        b.linear(attn_gate, &[("attn_output", s.attn_output)])?;
        b.norm("post_attention_norm", s.attn_output, s.attn_output)?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.mixture(&mixture, s)?;
        b.norm("post_ffw_norm", s.ffn_down, s.ffn_down)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
