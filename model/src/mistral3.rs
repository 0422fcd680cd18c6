//! Ministral 3 and Mistral Small 3.1: Llama with YaRN, and with queries that grow with the position.
//!
//! Sources: Mistral AI, "Ministral 3" (2026); for the growth, Nakanishi, "Scalable-Softmax Is Superior for Attention"
//! (2025), as in Llama 4.

use llamay_plan::{Gating, Nonlinearity, NormKind, Rope, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::{Config, Keys, value_error};
use crate::rope;
use crate::{File, Loaded, ModelError};

/// Steps of the growth: far more than any context has original lengths in it.
const MOST_STEPS: usize = 1 << 16;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("mistral3");
    let config =
        Config::read(keys, NormKind::Rms, &["attention.temperature_scale", "attention.sliding_window"])?;
    let window = keys.window()?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = rope::read_with_divisors(keys, &mut b, RopePairs::Interleaved)?;
    let query_rope = growing(keys, &b, rope.clone())?;
    let (rope, query_rope) = (b.rope_table(rope), b.rope_table(query_rope));

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, query_rope);
        b.rope(s.k, rope);
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}

/// The rotation of the queries, with the factor `1 + beta ln(1 + floor(position / n_ctx_original))`.
fn growing(keys: Keys<'_>, b: &Builder<'_>, rope: Rope) -> Result<Rope, ModelError> {
    const BETA: &str = "attention.temperature_scale";
    const SPAN: &str = "rope.scaling.original_context_length";
    let beta = match keys.float(BETA, 0.0..=1e3)? {
        None | Some(0.0) => return Ok(rope),
        Some(beta) => f64::from(beta),
    };
    // The factor comes with the rotation, so all of a head has to rotate.
    if b.config.n_rot != b.config.head_dim {
        let what = "queries that grow with the position and rotate in part";
        return Err(ModelError::Feature { what, key: keys.name(BETA), value: beta.to_string() });
    }
    let span = keys.count(SPAN, 1..=u32::MAX)?.unwrap_or(b.config.n_ctx_train);
    let steps = b.n_ctx.max(b.config.n_ctx_train as usize).div_ceil(span as usize);
    if steps > MOST_STEPS {
        let wanted = format!("a context of {} is more than {MOST_STEPS} times as long", b.n_ctx);
        return Err(value_error(keys, SPAN, span, wanted));
    }
    let grown = |m: &f32| {
        let factor = |step| 1.0 + beta * libm::log(1.0 + step as f64);
        (0..steps).map(|step| (f64::from(*m) * factor(step)) as f32).collect()
    };
    let magnitudes = rope.magnitudes.first().map(grown).unwrap_or_default();
    Ok(Rope { magnitudes, magnitude_span: span, ..rope })
}
