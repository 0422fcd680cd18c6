//! Gemma 3: windows in most layers, a norm before and behind each part, norms of queries and keys.
//!
//! Source: Gemma Team, "Gemma 3 Technical Report" (2025). Files hold the norms' weights with the model's `1 +` in them.

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::rope::{self, Scaling};
use crate::{File, Loaded, ModelError};

/// Every so many layers, one sees all positions.
const PATTERN: u32 = 6;
/// The base of the layers that see all positions.
const GLOBAL_ROPE_BASE: f32 = 1_000_000.0;
/// The base of the layers with a window.
const LOCAL_ROPE_BASE: f32 = 10_000.0;
/// By which the model is known whose scores are scaled by another number.
const LAYERS_OF_27B: u32 = 62;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("gemma3");
    let config = Config::read(keys, NormKind::Rms, &["attention.sliding_window"])?;
    let window = keys.need_count("attention.sliding_window", 1..=u32::MAX)? as u32;
    let windowed = keys.windowed_layers(config.n_layer, PATTERN)?;
    let global_base = rope::base(keys, "rope.freq_base")?.unwrap_or(GLOBAL_ROPE_BASE);
    let local_base = rope::base(keys, "rope.freq_base_swa")?.unwrap_or(LOCAL_ROPE_BASE);
    let scaling = Scaling::read(keys, config.n_ctx_train)?;
    let scale = attention_scale(&config, LAYERS_OF_27B);

    let mut b = Builder::new(file, config);
    let global_rope = b.rope_table(rope::table(&b.config, RopePairs::Halves, global_base, scaling, None));
    let local_rope = b.rope_table(rope::table(&b.config, RopePairs::Halves, local_base, Scaling::None, None));

    let x = b.embed((b.config.n_embd as f64).sqrt() as f32)?;
    let s = b.layer_slots();
    for (layer, windowed) in (0..).zip(windowed) {
        let (rope, window) = if windowed { (local_rope, Some(window)) } else { (global_rope, None) };
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.head_norms(s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.norm("post_attention_norm", s.attn_output, s.attn_output)?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::GeluTanh))?;
        b.norm("post_ffw_norm", s.ffn_down, s.ffn_down)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}

/// The factor of attention scores of Gemma 2 and 3. The 27B models divide by the root of their embedding's share of a
/// head, all others by that of the head's length, and files do not say which; they are known by their number of layers.
pub(crate) fn attention_scale(c: &Config, layers_of_27b: u32) -> f32 {
    match c.attention_scale {
        None if c.n_layer == layers_of_27b => (1.0 / (c.n_embd as f64 / c.n_head as f64).sqrt()) as f32,
        _ => c.attention_scale(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_by_the_head_except_in_27b() {
        // query_pre_attn_scalar of the published configurations.
        for (config, scalar) in [
            (Config::sized(18, 640, 4, 256), 256.0),
            (Config::sized(26, 1152, 4, 256), 256.0),
            (Config::sized(34, 2560, 8, 256), 256.0),
            (Config::sized(48, 3840, 16, 256), 256.0),
            (Config::sized(62, 5376, 32, 128), 168.0f64),
        ] {
            assert_eq!(attention_scale(&config, LAYERS_OF_27B), (1.0 / scalar.sqrt()) as f32);
        }
    }

    #[test]
    fn a_scale_in_the_file_wins() {
        let config = Config { attention_scale: Some(0.25), ..Config::sized(62, 5376, 32, 128) };
        assert_eq!(attention_scale(&config, LAYERS_OF_27B), 0.25);
    }
}
