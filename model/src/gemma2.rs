//! Gemma 2: a window in every other layer, a norm before and behind each part, soft caps of scores and logits.
//!
//! Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size" (2024). Files hold the norms'
//! weights with the model's `1 +` in them.

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::gemma3::attention_scale;
use crate::{File, Loaded, ModelError};

/// Every so many layers, one sees all positions.
const PATTERN: u32 = 2;
/// What files that do not say have.
const WINDOW: u32 = 4096;
const SCORE_CAP: f32 = 50.0;
const LOGIT_CAP: f32 = 30.0;
/// By which the model is known whose scores are scaled by another number.
const LAYERS_OF_27B: u32 = 46;
const MOST_CAP: f32 = 1e6;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("gemma2");
    let known = &["attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"];
    let config = Config::read(keys, NormKind::Rms, known)?;
    let window = keys.count("attention.sliding_window", 1..=u32::MAX)?.unwrap_or(WINDOW);
    let windowed = keys.windowed_layers(config.n_layer, PATTERN)?;
    // 0 stands for no cap.
    let cap = |key, default| {
        let cap = keys.float(key, 0.0..=MOST_CAP)?.unwrap_or(default);
        Ok::<_, ModelError>((cap > 0.0).then_some(cap))
    };
    let softcap = cap("attn_logit_softcapping", SCORE_CAP)?;
    let logit_cap = cap("final_logit_softcapping", LOGIT_CAP)?;
    let scale = attention_scale(&config, LAYERS_OF_27B);

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed((b.config.n_embd as f64).sqrt() as f32)?;
    let s = b.layer_slots();
    for (layer, windowed) in (0..).zip(windowed) {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention { window: windowed.then_some(window), softcap, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.norm("post_attention_norm", s.attn_output, s.attn_output)?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::GeluTanh))?;
        b.norm("post_ffw_norm", s.ffn_down, s.ffn_down)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    if let Some(cap) = logit_cap {
        b.softcap_logits(cap);
    }
    b.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_by_the_head_except_in_27b() {
        // query_pre_attn_scalar of the published configurations.
        for (config, scalar) in [
            (Config::sized(26, 2304, 8, 256), 256.0),
            (Config::sized(42, 3584, 16, 256), 256.0),
            (Config::sized(46, 4608, 32, 128), 144.0f64),
        ] {
            assert_eq!(attention_scale(&config, LAYERS_OF_27B), (1.0 / scalar.sqrt()) as f32);
        }
    }
}
