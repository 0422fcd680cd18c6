//! OLMo 2 and 3: norms behind the parts instead of before, norms of whole query and key rows, windows in the latter.
//!
//! Sources: OLMo Team, "2 OLMo 2 Furious" (2024) and "Olmo 3" (2025).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, LayerSlots};
use crate::config::Config;
use crate::rope::{self, Scaling};
use crate::{File, Loaded, ModelError};

/// In OLMo 3, every so many layers, one sees all positions.
const PATTERN: u32 = 4;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("olmo2");
    let config = Config::read(keys, NormKind::Rms, &["attention.sliding_window"])?;
    let window = keys.window()?;
    let windowed = match window {
        Some(_) => keys.windowed_layers(config.n_layer, PATTERN)?,
        None => vec![false; config.n_layer as usize],
    };
    let base = rope::base(keys, "rope.freq_base")?.unwrap_or(rope::BASE);
    let local_base = rope::base(keys, "rope.freq_base_swa")?.unwrap_or(base);
    let scale = config.attention_scale();

    let mut b = Builder::new(file, config);
    let global_rope = b.rotary(keys, RopePairs::Halves)?;
    // Only layers that see all positions are stretched.
    let local_rope = b.rope_table(rope::table(&b.config, RopePairs::Halves, local_base, Scaling::None, None));

    let x = b.embed(1.0)?;
    let s = LayerSlots { attn_norm: x, ffn_norm: x, ..b.layer_slots() };
    for (layer, windowed) in (0..).zip(windowed) {
        let (rope, window) = if windowed { (local_rope, window) } else { (global_rope, None) };
        b.enter_layer(layer);

        b.qkv(x, s)?;
        b.norm("attn_q_norm", s.q, s.q)?;
        b.norm("attn_k_norm", s.k, s.k)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
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
